"""The newest default set, really installed, and some of its cells: passing, failing, and with injected faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.grid.profiles import carried
from cases.space.verdict import Phase, Verdict
from matrix.run import request, store
from matrix.run.execute import Suite
from matrix.versions import sets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome

NEWEST = sets.select(sets.load(), "default")[-1].key
UNIFORM = "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"
PASSING = (
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
INJECTED = ("train-lora-ddp-bf16-with-sum_instead_of_mean", "train-lora-single-fp32-with-lora_b_frozen")
FAILING = "train-lora-fsdp1-use_orig_params_false-fp32"


def run_cells(out: Path, where: tuple[str, ...], suite: Suite) -> dict[str, Outcome]:
    """Outcomes by case. Uses the user's cache: the first installation takes minutes, later ones take seconds."""
    directory = request.run(
        request.RunRequest(
            sets=NEWEST, where=f"case={','.join(where)}", device="cpu", out=out, cold_sample=0, suite=suite
        )
    )
    return {outcome.case: outcome for outcome in store.read(directory)[2]}


@pytest.fixture(scope="session")
def outcomes(make_once: Callable[..., Path]) -> dict[str, Outcome]:
    """Outcomes of one run, for the tests of all workers."""
    directory = make_once("real", lambda out: run_cells(out, (*PASSING, FAILING), Suite()))
    return {outcome.case: outcome for outcome in store.read(directory)[2]}


@pytest.mark.parametrize("case", PASSING)
def test_working_cells_pass(outcomes: dict[str, Outcome], case: str) -> None:
    assert (outcomes[case].verdict, outcomes[case].reason) == (Verdict.PASS, "")


def test_fsdp1_rejects_frozen_and_trainable_weights_in_one_flat_parameter(outcomes: dict[str, Outcome]) -> None:
    error = outcomes[FAILING].error
    assert error is not None
    assert (outcomes[FAILING].verdict, outcomes[FAILING].phase) == (Verdict.FAIL, Phase.WRAP)
    assert (error.type, error.message) == ("ValueError", UNIFORM)


def test_a_pass_requires_checks_of_losses_gradients_and_weights(outcomes: dict[str, Outcome]) -> None:
    names = {check.name for check in outcomes["train-lora-nf4-fsdp2-bf16"].checks}
    assert {"loss", "gradient", "weights", "quantised layers", "frozen parameters that changed"} <= names


def test_facts_state_the_versions_of_the_set(outcomes: dict[str, Outcome]) -> None:
    pins = next(each.pins for each in sets.load() if each.key == NEWEST)
    facts = outcomes["train-full-single-fp32"].facts
    assert {name: facts[name] for name in pins if name != "torch"} == {n: v for n, v in pins.items() if n != "torch"}
    assert str(facts["torch"]).partition("+")[0] == pins["torch"]


def test_ranks_are_forked_from_a_preloaded_parent(outcomes: dict[str, Outcome]) -> None:
    assert {outcome.facts["start"] for outcome in outcomes.values()} == {"warm"}


def test_an_injected_fault_is_wrong_although_nothing_raises(tmp_path: Path, outcomes: dict[str, Outcome]) -> None:
    found = run_cells(tmp_path / "run", INJECTED, Suite(module="cases.injection.fault_suite"))
    missed = {case: {check.name for check in outcome.checks if not check.ok} for case, outcome in found.items()}
    assert {outcome.verdict for outcome in found.values()} == {Verdict.WRONG}
    assert "gradient" in missed[INJECTED[0]]
    assert "trained parameters as in the twin" in missed[INJECTED[1]]
    assert outcomes["train-lora-ddp-bf16"].verdict is Verdict.PASS


def test_an_adapter_saved_under_one_version_set_loads_under_another(tmp_path: Path) -> None:
    """The adapter is loaded, trained further and merged. Both sets are the same here."""
    (each,) = sets.select(sets.load(), NEWEST)
    saving = Suite().cases["portability-lora-single-fp32"]
    loading = carried(saving, NEWEST)
    run_request = request.RunRequest(sets=NEWEST, device="cpu", out=tmp_path / "run", cold_sample=0)
    directory = request.run(run_request, work=[(each, (saving,)), (each, (loading,))])
    found = {outcome.case: outcome for outcome in store.read(directory)[2]}
    assert {case: outcome.verdict for case, outcome in found.items()} == dict.fromkeys(
        (saving.id, loading.id), Verdict.PASS
    )
    assert found[loading.id].options["saved_under"] == NEWEST
