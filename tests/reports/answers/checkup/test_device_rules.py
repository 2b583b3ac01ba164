"""A job on GPUs that only a CPU measured is moved to no set that a CPU alone shows as green."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.case import Case
from cases.space.options import Options
from matrix.run.outcome import ErrorRecord
from reports.answers.checkup import places
from reports.answers.checkup.doctor import examine
from reports.answers.checkup.installed import Installed
from reports.answers.configuration import configs, job
from reports.render.text import doctor_text
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.checkup.doctor import Checkup
    from reports.results.grid import Grid

FLAT = {"strategy": "fsdp1", "use_orig_params": False, "auto_wrap_policy": "peft"}
TEXT = """\
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_use_orig_params: false
"""
TRAINER = "model_name_or_path: x\nuse_peft: true\ndtype: float32\nbf16: false\n"
H200 = "cuda: NVIDIA H200 x 2"
ON_CPU = "cpu: EPYC x 2"


@pytest.fixture
def build(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., Grid]:
    """Build a grid of one hardware from (set, verdict) pairs of the sharded case; the newer set has peft 0.12."""
    older = build_set("2024-06")
    columns = {"2024-06": older, "2024-09": build_set("2024-09", pins={**older.pins, "peft": "0.12.0"})}

    def built(hardware: str, *cells: tuple[str, str], **facts: str) -> Grid:
        options = Options().but(**FLAT)
        case = Case(group="", why="", options=options).id
        error = ErrorRecord(type="ValueError", message="no")
        more = {"options": options.stated, "hardware": hardware, "facts": facts}
        outcomes = [
            build_outcome(case, key, verdict, error=error if verdict == "fail" else None, **more)
            for key, verdict in cells
        ]
        return grid(build_run(), [columns[key] for key, _ in cells], outcomes)

    return built


def check(grids: dict[str, Grid], text: str = TEXT, **torch: str) -> Checkup:
    """Check the versions of the older set."""
    (older,) = (each for each in grids["cpu"].sets if each.key == "2024-06")
    versions = {**older.pins, **torch}
    files = [configs.parse(text, Path("job.yaml")), configs.parse(TRAINER, Path("trl.yaml"))]
    training_job = job.combine(files, versions)
    environment = Installed(where=Path("venv"), python="3.11", versions=versions)
    return examine(environment, training_job, grids, {name: {} for name in grids})


def found(build: Callable[..., Grid], *on_gpus: tuple[str, str], **other: Any) -> Checkup:
    cpu = build(ON_CPU, ("2024-06", "fail"), ("2024-09", "pass"))
    return check({"cpu": cpu, "cuda": build(H200, *on_gpus)}, **other)


def test_a_set_that_gpus_show_as_green_is_offered_with_its_gpus(build: Callable[..., Grid]) -> None:
    result = found(build, ("2024-09", "pass"))
    assert result.device == "cpu"
    assert result.pins is not None
    assert (dict(result.pins.moves), result.pins.hardware) == ({"peft": "0.12.0"}, H200)
    shown = [each.partition("__")[0] for each in doctor_text.lines(result) if each.startswith("  shown on")]
    assert shown == ["  shown on a CPU by 2024-06", "  shown on NVIDIA H200 x 2 by 2024-09"]


def test_a_set_that_only_a_cpu_shows_as_green_is_named_but_not_offered(build: Callable[..., Grid]) -> None:
    result = found(build, ("2024-09", "fail"))
    assert (result.device, result.pins) == ("cpu", None)
    assert result.unknown[-1].endswith("no GPU measured such a job as green; on a CPU it is green with 2024-09")


@pytest.mark.parametrize(
    "other", [{"torch": "2.3.1+cpu"}, {"text": f"{TEXT}use_cpu: true\n"}], ids=["a build for CPUs", "a job on a CPU"]
)
def test_a_job_on_a_cpu_is_moved_to_what_a_cpu_shows(other: dict[str, Any], build: Callable[..., Grid]) -> None:
    result = found(build, ("2024-09", "fail"), **other)
    assert result.pins is not None
    assert result.pins.hardware == ON_CPU
    assert any(each.startswith("  shown on a CPU by 2024-09__") for each in doctor_text.lines(result))


def test_an_answer_names_device_hardware_and_build(build: Callable[..., Grid]) -> None:
    cpu, cuda = build(ON_CPU, ("2024-06", "pass")), build(H200, ("2024-06", "fail"), torch_build="2.3.1+cu121")
    result = check({"cpu": cpu, "cuda": cuda})
    assert list(map(str, result.places)) == ["GPU (cuda), NVIDIA H200 x 2, torch 2.3.1+cu121"]
    assert "  results: GPU (cuda), NVIDIA H200 x 2, torch 2.3.1+cu121" in list(doctor_text.lines(result))
    (place,) = doctor_text.document(result)["environment"]["measured_on"]
    assert place == {"device": "cuda", "hardware": "NVIDIA H200 x 2", "torch": "2.3.1+cu121"}


def test_without_a_recorded_build_the_version_of_the_set_is_named(build: Callable[..., Grid]) -> None:
    matrix = build(ON_CPU, ("2024-06", "pass"))
    assert list(map(str, places.places_of(matrix.cells.values(), matrix))) == ["CPU (gloo), EPYC x 2, torch 2.3.1"]


@pytest.mark.parametrize(("hardware", "words"), [(H200, "on NVIDIA H200 x 2"), (ON_CPU, "on a CPU"), ("", "")])
def test_words_for_hardware(hardware: str, words: str) -> None:
    assert places.on_words(hardware) == words
