"""The newest default set, installed for real, and a few of its cells: green, red, and wrong on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.grid.profiles import carried
from cases.space.verdict import Phase, Verdict
from matrix.environments import leases
from matrix.run import request, store
from matrix.run.execute import Suite
from matrix.versions import sets

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.run.outcome import Outcome

NEWEST = sets.select(sets.load(), "default")[-1].key
UNIFORM = "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"
GREEN = (
    "load-nf4-single-bf16",
    "train-full-single-fp32",
    "train-lora-ddp-bf16",
    "train-lora-nf4-fsdp2-bf16",
    "train-full-fsdp2-fp32",
    "save_reload-lora-fsdp2-fp32",
    "resume-lora-ddp-fp32-adamw",
    "merge-lora-single-bf16",
    "generate-lora-single-fp32",
    "train-lora-ddp-fp32-adamw-trainer",
)
PLANTED = ("train-lora-ddp-bf16-with-sum_instead_of_mean", "train-lora-single-fp32-with-lora_b_frozen")
RED = "train-lora-fsdp1-use_orig_params_false-fp32"


def measured(out: Path, where: tuple[str, ...], suite: Suite) -> dict[str, Outcome]:
    """The outcomes by case, run with the user's own cache: installing takes minutes once, and seconds after that."""
    directory = request.run(
        request.Asked(sets=NEWEST, where=f"case={','.join(where)}", device="cpu", out=out, cold_sample=0, suite=suite)
    )
    return {outcome.case: outcome for outcome in store.read(directory)[2]}


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Run once for all xdist workers; who comes later reads."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    lease = leases.acquire_exclusive(shared / "real.lock")
    try:
        if not (shared / "real").exists():
            return measured(shared / "real", (*GREEN, RED), Suite())
        return {outcome.case: outcome for outcome in store.read(shared / "real")[2]}
    finally:
        lease.release()


@pytest.mark.parametrize("case", GREEN)
def test_what_works_is_green(outcomes: dict[str, Outcome], case: str) -> None:
    assert (outcomes[case].verdict, outcomes[case].reason) == (Verdict.PASS, "")


def test_frozen_and_trainable_weights_in_one_flat_parameter_are_refused_by_fsdp1(outcomes: dict[str, Outcome]) -> None:
    error = outcomes[RED].error
    assert error is not None
    assert (outcomes[RED].verdict, outcomes[RED].phase) == (Verdict.FAIL, Phase.WRAP)
    assert (error.type, error.message) == ("ValueError", UNIFORM)


def test_green_rests_on_losses_gradients_and_weights(outcomes: dict[str, Outcome]) -> None:
    made = {check.name for check in outcomes["train-lora-nf4-fsdp2-bf16"].checks}
    assert {"loss", "gradient", "weights", "quantised layers", "frozen parameters that changed"} <= made


def test_the_facts_are_those_of_the_set(outcomes: dict[str, Outcome]) -> None:
    pins = next(each.pins for each in sets.load() if each.key == NEWEST)
    facts = outcomes["train-full-single-fp32"].facts
    assert {name: facts[name] for name in pins if name != "torch"} == {n: v for n, v in pins.items() if n != "torch"}
    assert str(facts["torch"]).partition("+")[0] == pins["torch"]


def test_ranks_are_forked_from_a_parent_that_imported_the_stack(outcomes: dict[str, Outcome]) -> None:
    assert {outcome.facts["start"] for outcome in outcomes.values()} == {"warm"}


def test_a_planted_fault_is_wrong_though_nothing_is_raised(tmp_path: Path, outcomes: dict[str, Outcome]) -> None:
    found = measured(tmp_path / "run", PLANTED, Suite(module="cases.injection.fault_suite"))
    missed = {case: {check.name for check in outcome.checks if not check.ok} for case, outcome in found.items()}
    assert {outcome.verdict for outcome in found.values()} == {Verdict.WRONG}
    assert "gradient" in missed[PLANTED[0]]
    assert "trained parameters as in the twin" in missed[PLANTED[1]]
    assert outcomes["train-lora-ddp-bf16"].verdict is Verdict.PASS


def test_an_adapter_travels_from_one_version_set_to_another(tmp_path: Path) -> None:
    """Saved under one, and loaded, trained on and merged under the other; here both are the same."""
    (each,) = sets.select(sets.load(), NEWEST)
    begun = Suite().cases["portability-lora-single-fp32"]
    travelled = carried(begun, NEWEST)
    asked_for = request.Asked(sets=NEWEST, device="cpu", out=tmp_path / "run", cold_sample=0)
    directory = request.run(asked_for, work=[(each, (begun,)), (each, (travelled,))])
    found = {outcome.case: outcome for outcome in store.read(directory)[2]}
    assert {case: outcome.verdict for case, outcome in found.items()} == dict.fromkeys(
        (begun.id, travelled.id), Verdict.PASS
    )
    assert found[travelled.id].options["saved_under"] == NEWEST
