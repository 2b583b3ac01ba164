"""Repairs of a job: settings that a search proved or the grid shows, then versions, then the goal itself."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.case import Case
from cases.space.options import Options
from matrix.run.outcome import ErrorRecord
from matrix.search.fixes import Change, Fix, Fixes, Kind
from reports.answers.checkup import repairs
from reports.answers.configuration import configs, job
from reports.answers.fixes.remedies import Remedy
from reports.answers.judgement.coverage import MeasuredCells
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.checkup.repairs import Repair
    from reports.answers.configuration.job import TrainingJob

FLAT = {"strategy": "fsdp1", "use_orig_params": False}
RED = ("fail", FLAT)
TEXT = """\
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_use_orig_params: false
"""


@pytest.fixture
def evidence(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., MeasuredCells]:
    """Build measured cells of some cases on one set, and of others on a newer set."""

    def build(*cells: tuple[str, dict[str, Any]], newer: tuple[tuple[str, dict[str, Any]], ...] = ()) -> MeasuredCells:
        older = build_set("2024-06")
        columns = [older, build_set("2024-09", pins={**older.pins, "peft": "0.12.0"})]
        outcomes = []
        for column, several in zip(columns, (cells, newer), strict=True):
            for verdict, changes in several:
                options = Options().but(**changes)
                name = Case(group="", why="", options=options).id
                error = ErrorRecord(type="ValueError", message="no") if verdict == "fail" else None
                stated = options.stated
                outcomes.append(build_outcome(name, column.key, verdict=verdict, options=stated, error=error))
        return MeasuredCells(grid(build_run(), columns, outcomes))

    return build


def sharded(pins: dict[str, str], text: str = TEXT) -> TrainingJob:
    return job.combine([configs.parse(text, Path("job.yaml"))], pins)


def by_settings(found: MeasuredCells, fixes: dict[str, Remedy] | None = None) -> Repair | None:
    pins = found.columns[0].pins
    training_job = sharded(pins)
    assert training_job.options is not None
    return repairs.by_settings(training_job, found.coverage(training_job.options, pins), pins, found, fixes or {})


def proven(**changes: Any) -> dict[str, Remedy]:
    case = "train-lora-fsdp1-use_orig_params_false-fp32"
    fix = Fix(
        set="2024-06",
        case=case,
        kind=Kind.SETTINGS,
        changes=tuple(Change(name=name, old=False, new=new) for name, new in changes.items()),
        tried=1,
        within="one setting",
    )
    document = Fixes(
        generated=datetime(2026, 11, 20, tzinfo=UTC), device="cpu", hardware="cpu", code="c0de", fixes=(fix,)
    )
    return {f"2024-06__{case}": Remedy(fix=fix, found=document)}


def changes_of(repair: Repair | None) -> dict[str, Any]:
    assert repair is not None
    return dict(repair.changes)


def test_a_green_neighbour_of_the_red_case_shows_the_change(evidence: Callable[..., MeasuredCells]) -> None:
    found = by_settings(evidence(RED, ("pass", {"strategy": "fsdp1"})))
    assert changes_of(found) == {"use_orig_params": True}
    assert found is not None
    assert list(found.texts.values()) == [TEXT.replace("false", "true")]


def test_a_fix_from_a_search_comes_first(evidence: Callable[..., MeasuredCells]) -> None:
    cells = evidence(RED, ("pass", {"strategy": "fsdp1"}), ("pass", {**FLAT, "sharding_strategy": "shard_grad_op"}))
    assert changes_of(by_settings(cells)) == {"use_orig_params": True}
    assert changes_of(by_settings(cells, proven(sharding_strategy="shard_grad_op"))) == {
        "sharding_strategy": "shard_grad_op"
    }


def test_a_proven_fix_that_does_not_help_this_job_is_skipped(evidence: Callable[..., MeasuredCells]) -> None:
    cells = evidence(RED, ("pass", {"strategy": "fsdp1"}))
    assert changes_of(by_settings(cells, proven(sharding_strategy="no_shard"))) == {"use_orig_params": True}


def test_the_fewest_changes_win(evidence: Callable[..., MeasuredCells]) -> None:
    both = {"strategy": "fsdp1", "sharding_strategy": "shard_grad_op"}
    assert changes_of(by_settings(evidence(RED, ("pass", both), ("pass", {"strategy": "fsdp1"})))) == {
        "use_orig_params": True
    }
    assert changes_of(by_settings(evidence(RED, ("pass", both)))) == {
        "use_orig_params": True,
        "sharding_strategy": "shard_grad_op",
    }


ADDITIONS = {
    "torch_compile": ({"torch_compile": True}, {}, "torch_compile: true", "torch_compile: false"),
    "gradient_accumulation_steps": (
        {"gradient_accumulation_steps": 2},
        {},
        "gradient_accumulation_steps: 8",
        "gradient_accumulation_steps: 1",
    ),
    "clip_grad_norm": ({"clip_grad_norm": True}, {}, "max_grad_norm: 1.0", "max_grad_norm: 0"),
    "optim": ({"optim": "adamw_8bit"}, {"optim": "adamw"}, "optim: adamw_bnb_8bit", "optim: adamw_torch"),
    "gradient_checkpointing": (
        {"gradient_checkpointing": "reentrant"},
        {},
        "gradient_checkpointing_kwargs: {use_reentrant: true}\ngradient_checkpointing: true",
        "gradient_checkpointing: false",
    ),
}


@pytest.mark.parametrize(("red", "green", "requested", "replacement"), ADDITIONS.values(), ids=ADDITIONS)
def test_dropping_a_red_addition_counts_as_giving_up(
    red: dict[str, Any], green: dict[str, Any], requested: str, replacement: str, evidence: Callable[..., MeasuredCells]
) -> None:
    cells = evidence(("wrong", {"method": "full", **red}), ("pass", {"method": "full", **green}))
    pins = cells.columns[0].pins
    training_job = sharded(pins, f"model_name_or_path: x\nuse_peft: false\ndtype: float32\nbf16: false\n{requested}\n")
    assert training_job.options is not None
    ((name, value),) = red.items()
    assert getattr(training_job.options, name) == value
    assert (
        repairs.by_settings(
            training_job, cells.coverage(training_job.options, pins), pins, cells, proven(**{name: False})
        )
        is None
    )
    found = repairs.by_giving_up(training_job, pins, cells)
    assert found is not None
    assert found.given_up == f"{name}={value}"
    assert [text.splitlines()[-1] for text in found.texts.values()] == [replacement]


def test_a_searched_fix_that_gives_something_up_is_no_change_of_settings(
    evidence: Callable[..., MeasuredCells],
) -> None:
    cells = evidence(RED, ("pass", {**FLAT, "sharding_strategy": "no_shard"}))
    assert by_settings(cells, proven(sharding_strategy="no_shard")) is None


def test_a_green_case_without_the_red_addition_proves_no_repair(evidence: Callable[..., MeasuredCells]) -> None:
    """The newer set and DDP are green only without the addition."""
    red = ("fail", {"strategy": "fsdp1", "optim": "adamw_8bit"})
    cells = evidence(red, ("pass", {"strategy": "ddp"}), newer=(("pass", {"strategy": "fsdp1"}),))
    pins = cells.columns[0].pins
    text = "model_name_or_path: x\nuse_peft: true\ndtype: float32\nbf16: false\noptim: adamw_bnb_8bit\n"
    accelerate = configs.parse(TEXT.replace("false", "true"), Path("job.yaml"))
    training_job = job.combine([accelerate, configs.parse(text, Path("trl.yaml"))], pins)
    assert training_job.options is not None
    assert cells.coverage(training_job.options, pins).reds
    assert repairs.by_giving_up(training_job, pins, cells) is None
    assert repairs.by_versions(training_job, pins, cells, {}) is None


def test_a_change_of_precision_or_goal_is_no_change_of_settings(evidence: Callable[..., MeasuredCells]) -> None:
    others = ({**FLAT, "torch_dtype": "bf16"}, {**FLAT, "method": "dora"}, {"strategy": "ddp"})
    assert by_settings(evidence(RED, *(("pass", other) for other in others))) is None


def test_a_change_that_only_code_can_make_has_no_text(evidence: Callable[..., MeasuredCells]) -> None:
    found = by_settings(evidence(RED, ("pass", {**FLAT, "auto_wrap_policy": "peft"})))
    assert changes_of(found) == {"auto_wrap_policy": "peft"}
    assert found is not None
    assert found.texts == {}


def test_only_green_changes_are_offered(evidence: Callable[..., MeasuredCells]) -> None:
    assert by_settings(evidence(RED)) is None
    assert by_settings(evidence(RED, ("wrong", {"strategy": "fsdp1"}))) is None


def test_the_nearest_green_set_tells_which_packages_to_move(evidence: Callable[..., MeasuredCells]) -> None:
    cells = evidence(RED, newer=(("pass", FLAT),))
    pins = cells.columns[0].pins
    found = repairs.by_versions(sharded(pins), pins, cells, {})
    assert found is not None
    assert (dict(found.moves), found.settings) == ({"peft": "0.12.0"}, None)
    assert found.rest == (
        "sync_module_states=True",
        "cpu_ram_efficient_loading=True",
        "optim=adamw",
        "front_end=accelerate",
    )


def test_a_set_may_need_a_setting_as_well(evidence: Callable[..., MeasuredCells]) -> None:
    cells = evidence(RED, newer=(RED, ("pass", {"strategy": "fsdp1"})))
    pins = cells.columns[0].pins
    found = repairs.by_versions(sharded(pins), pins, cells, {})
    assert found is not None
    assert changes_of(found.settings) == {"use_orig_params": True}


def test_a_part_of_the_goal_is_given_up_last(evidence: Callable[..., MeasuredCells]) -> None:
    cells = evidence(RED, ("pass", {"strategy": "ddp"}))
    pins = cells.columns[0].pins
    found = repairs.by_giving_up(sharded(pins), pins, cells)
    assert found is not None
    assert (found.given_up, list(found.texts.values())) == (
        "strategy=fsdp1",
        [TEXT.replace("distributed_type: FSDP", "distributed_type: MULTI_GPU")],
    )
