"""A fix is printed as edits of whole files, which are valid before and after it."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from cases.space.options import OWN_CODE, Options
from matrix.run.execute import Suite
from matrix.search import neighbours
from matrix.search.fixes import Change, Fix, Fixes, Kind
from reports.answers.fixes.remedies import Remedy
from reports.answers.scripts import edits
from reports.answers.scripts.edits import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PINS = {"python": "3.11", "torch": "2.8.0", "transformers": "4.56.1", "peft": "0.17.1"}
CASES = Suite().cases
GRID = [case.options for case in CASES.values() if case.options.flow not in OWN_CODE]


def stack(**changes: object) -> Stack:
    return at(PINS, Options().but(**changes))


def at(pins: Mapping[str, str], options: Options) -> Stack:
    return Stack(pins=pins, options=options, set="2025-09")


def script(pins: Mapping[str, str], **changes: object) -> str:
    return "\n".join(edits.files(at({**PINS, **pins}, Options().but(**changes)))["train.py"])


def fix_text(fix: Fix, before: Stack, after: Options, *, device: str = "cpu") -> str:
    when = datetime(2026, 11, 20, tzinfo=UTC)
    found = Fixes(generated=when, device=device, hardware=f"{device}: test", code="c0de", fixes=(fix,))
    return edits.fix_text(Remedy(fix=fix, found=found), before, after)


def steps() -> Iterator[tuple[Options, neighbours.Changes]]:
    """Every change that a search may make of a case of the grid."""
    for start in GRID:
        for around in (neighbours.settings(start, 1), neighbours.alternatives(start)):
            yield from ((start, changes) for changes in around)


def a_fix(kind: Kind, **changes: object) -> Fix:
    return Fix.model_validate(
        {
            "set": "2025-09",
            "case": "red",
            "kind": kind,
            "to_set": "2025-09",
            "to_case": "green",
            "changes": tuple(Change.model_validate({"name": n, "old": "", "new": v}) for n, v in changes.items()),
            "runs": 2,
            "witnesses": ("2025-09__red",),
            "tried": 3,
            "within": "3 single settings",
        }
    )


def test_every_change_of_a_search_shows_in_an_edit() -> None:
    unseen = set()
    for start, changes in steps():
        there = neighbours.moved(start, changes)
        assert there is not None
        if not edits.diff(at(PINS, start), at(PINS, there)):
            unseen |= {f"{name}={value} of {start.strategy}, {start.flow}" for name, value in changes.items()}
    assert unseen == set()


def test_every_script_of_the_grid_is_python() -> None:
    for options in GRID:
        ast.parse("\n".join(edits.files(at(PINS, options))["train.py"]))


def test_every_api_call_is_python() -> None:
    for case in CASES.values():
        if case.options.flow == "api":
            ast.parse("\n".join(edits.files(at(PINS, case.options))["use.py"]))


def test_every_accelerate_configuration_is_yaml() -> None:
    yaml: Any = YAML(typ="safe", pure=True)
    for options in GRID:
        lines = edits.files(at(PINS, options)).get("accelerate.yaml", ["compute_environment: none"])
        assert yaml.load("\n".join(lines))["compute_environment"]


def test_options_without_a_key_of_accelerate_have_no_configuration() -> None:
    files = edits.files(stack(strategy="fsdp1", auto_wrap_policy="peft"))
    assert "accelerate.yaml" not in files
    assert any("fsdp_auto_wrap_policy(model)" in line for line in files["train.py"])


def test_changed_versions_are_an_edit_of_the_requirements() -> None:
    fix = a_fix(Kind.VERSIONS, peft="0.18.0", bitsandbytes="0.48.1")
    lines = fix_text(fix, stack(), Options()).splitlines()
    assert {"-peft==0.17.1", "+peft==0.18.0", "+bitsandbytes==0.48.1"} <= set(lines)


def test_a_fix_of_an_api_call_is_an_edit_of_its_function() -> None:
    one, other = [at(PINS, case.options) for case in CASES.values() if case.options.flow == "api"][:2]
    assert "--- a/use.py" in edits.diff(one, other)


def test_an_alternative_is_named_as_one() -> None:
    text = fix_text(a_fix(Kind.ALTERNATIVE, strategy="ddp"), stack(strategy="fsdp1"), stack(strategy="ddp").options)
    assert "An alternative, which gives up part of the request" in text
    assert "+model = DistributedDataParallel(" in text


def test_a_fix_that_may_not_be_minimal_is_marked() -> None:
    fix = a_fix(Kind.VERSIONS, peft="0.18.0").model_copy(update={"minimal": False})
    assert "so a shorter fix may exist" in fix_text(fix, stack(), Options())


def test_a_renamed_argument_is_an_edit_only_if_both_sides_know_the_new_name() -> None:
    old, new = at({**PINS, "transformers": "4.55.0"}, Options()), at(PINS, Options())
    assert "dtype" not in edits.diff(old, new)


def test_a_fix_names_the_device_machine_and_date_of_its_measurement() -> None:
    fix = a_fix(Kind.ALTERNATIVE, strategy="ddp")
    cpu, gpu = (
        fix_text(fix, stack(strategy="fsdp1"), stack(strategy="ddp").options, device=d) for d in ("cpu", "cuda")
    )
    assert "Measured on CPU (gloo): 2025-09__green, green in 2 runs on cpu: test, 2026-11-20." in cpu
    assert "Measured on GPU (cuda): 2025-09__green, green in 2 runs on cuda: test, 2026-11-20." in gpu


def test_a_missing_fix_names_the_device_too() -> None:
    none = Fix(set="2025-09", case="red", kind=Kind.NONE, tried=0, within="it is not red every time: pass, fail")
    assert fix_text(none, stack(), Options(), device="cuda") == (
        "2025-09__red\nNo fix found on GPU (cuda), cuda: test, 2026-11-20 (it is not red every time: pass, fail)."
    )


def test_a_fix_without_witnesses_states_that_the_cell_was_red_in_every_run() -> None:
    text = fix_text(a_fix(Kind.ALTERNATIVE, strategy="ddp"), stack(strategy="fsdp1"), Options())
    assert "Red without it, in every run." in text


def test_a_setting_that_costs_precision_is_marked() -> None:
    plain, costly = (
        fix_text(a_fix(Kind.SETTINGS, **changes), stack(), Options())
        for changes in ({"use_orig_params": False}, {"autocast_adapter_dtype": False})
    )
    assert "computation stay: use_orig_params" in plain
    assert "computation stay; the dtype of the adapters does not: autocast_adapter_dtype=False" in costly


def test_a_change_of_versions_names_the_lock_of_the_other_packages() -> None:
    fix = a_fix(Kind.VERSIONS, peft="0.18.0").model_copy(update={"to_set": "2025-09+peft0.18.0"})
    text = fix_text(fix, stack(), Options())
    assert "with what was resolved for 2025-09+peft0.18.0." in text
    assert {"-# other packages: the lock of 2025-09", "+# other packages: the lock of 2025-09+peft0.18.0"} <= {
        *text.splitlines()
    }


def test_a_set_that_does_not_resolve_is_not_called_red() -> None:
    witnesses = {"witnesses": ("2025-09+trl2__red", "2025-09+peft2__red"), "blocked": ("2025-09+peft2__red",)}
    text = fix_text(a_fix(Kind.VERSIONS, peft="2", trl="2").model_copy(update=witnesses), stack(), Options())
    assert "Red with all of these changes but one: 2025-09+trl2__red." in text
    assert "Cannot be resolved or installed with all but one: 2025-09+peft2__red." in text


def test_an_unpinned_package_has_no_version() -> None:
    gone, come = (Change(name="numpy", old=old, new=new) for old, new in (("1.2", ""), ("", "1.2")))
    assert edits.change_text(gone) == "numpy unpinned instead of 1.2"
    assert edits.change_text(come) == "numpy=1.2 instead of unpinned"


def test_an_old_peft_gets_no_autocast_adapter_dtype() -> None:
    half = {"torch_dtype": "bf16"}
    assert "autocast_adapter_dtype=True" in script({"peft": "0.12.0"}, **half)
    assert "autocast_adapter_dtype" not in script({"peft": "0.11.1"}, **half)


@pytest.mark.parametrize(
    ("front_end", "old", "new"),
    [
        ("trainer", {"transformers": "4.45.2"}, {"transformers": "4.46.0"}),
        ("sft", {"trl": "0.11.4"}, {"trl": "0.12.0"}),
    ],
)
def test_a_trainer_gets_the_tokenizer_by_the_name_that_it_knows(
    front_end: str, old: dict[str, str], new: dict[str, str]
) -> None:
    assert "    tokenizer=tokenizer," in script(old, front_end=front_end)
    assert "    processing_class=tokenizer," in script(new, front_end=front_end)


def test_a_trl_without_sft_config_gets_training_arguments() -> None:
    old, new = (script({"trl": version}, front_end="sft") for version in ("0.8.6", "0.9.4"))
    assert "arguments = TrainingArguments(" in old
    assert '    dataset_text_field="text",' in old
    assert "arguments = SFTConfig(" in new
    assert "dataset_text_field" not in new


def test_fsdp1_in_bfloat16_has_its_buffers_in_bfloat16_too() -> None:
    half = "MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)"
    assert half in script({}, strategy="fsdp1", world_size=2, mixed_precision="bf16")
    assert "buffer_dtype" not in script({}, strategy="fsdp2", world_size=2, mixed_precision="bf16")
    assert "buffer_dtype" not in script({}, strategy="fsdp1", world_size=2, mixed_precision="bf16_reduce_fp32")


def test_fsdp1_scales_gradients_with_its_own_scaler() -> None:
    assert "scaler = ShardedGradScaler(" in script({}, strategy="fsdp1", world_size=2, autocast="fp16")
    assert "scaler = torch.amp.GradScaler(" in script({}, strategy="ddp", world_size=2, autocast="fp16")
