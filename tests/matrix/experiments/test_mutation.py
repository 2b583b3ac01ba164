"""A mutant runs cell by cell until one is red; its status follows from the verdicts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cases.injection.mutant_suite import NOTICED, mutated_case
from cases.injection.numbers import FACT
from cases.injection.source_mutants import SourceMutant
from cases.space.verdict import Verdict
from cases.suite import CASES
from matrix.experiments import mutation, mutation_score
from matrix.experiments.mutant_sample import Sample
from matrix.experiments.mutants import Mutant
from matrix.experiments.mutation_score import MutantResult, MutatedCell, SetScore, cell_result
from matrix.run import store
from matrix.run.outcome import CheckRecord, LocationRecord, Outcome
from matrix.run.progress import Silent
from matrix.run.request import RunRequest
from matrix.versions import sets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FIRST, SECOND = "train-lora-single-fp32", "train-lora-ddp-bf16"
VERSION_SET = next(each for each in sets.load() if each.key == "2026-11")


def a_mutant(name: str = "m1", kind: str = "term", file: str = "peft/a.py") -> Mutant:
    edit = SourceMutant(name, file, "", "f", 0, 1, "x")
    return Mutant(kind=kind, where="f", line=3, last=3, before="  x + y", after="  x", edit=edit)


def an_outcome(case: str, verdict: str, **other: Any) -> Outcome:
    return Outcome(
        set="2026-11",
        case=case,
        group="",
        why="",
        options={},
        verdict=Verdict(verdict),
        started=datetime.now(UTC),
        seconds=1.0,
        **other,
    )


def a_result(*verdicts: str, covered: bool = True, **mutant: str) -> MutantResult:
    cells = tuple(MutatedCell(case=FIRST, verdict=each, noticed=(), seconds=1.0) for each in verdicts)
    return MutantResult(mutant=a_mutant(**mutant), cells=cells, covered=covered)


@pytest.mark.parametrize(
    ("verdicts", "covered", "status"),
    [
        (("pass", "wrong"), True, "killed"),
        (("hang",), True, "killed"),
        (("pass", "lost"), True, "survived"),
        (("lost",), True, "lost"),
        ((), True, "not run"),
        ((), False, "not covered"),
    ],
)
def test_the_status_follows_from_the_verdicts(verdicts: tuple[str, ...], covered: bool, status: str) -> None:  # noqa: FBT001 - a row
    assert a_result(*verdicts, covered=covered).status == status


def test_the_score_counts_judged_mutants_only() -> None:
    results = (a_result("wrong"), a_result("pass"), a_result("fail"), a_result("lost"), a_result(covered=False))
    total = SetScore(set="2026-11", traced_cells=1, mutants=results).total
    assert total.judged == 3
    assert total.score == pytest.approx(2 / 3)


def test_shares_are_by_package_and_by_kind() -> None:
    results = (a_result("wrong", kind="term"), a_result("pass", kind="dim", file="trl/b.py"))
    score = SetScore(set="2026-11", traced_cells=1, mutants=results)
    assert [(each.name, each.score) for each in score.shares(lambda mutant: mutant.package)] == [
        ("peft", 1.0),
        ("trl", 0.0),
    ]
    assert [each["name"] for each in score.as_json()["kinds"]] == ["dim", "term"]


def test_the_missed_checks_noticed_it() -> None:
    check = CheckRecord(name="gradient", value=1.0, op="<=", bound=0.1, ok=False)
    outcome = an_outcome(FIRST, "wrong", checks=(check,), reason="gradient 1 <= 0.1")
    assert cell_result(FIRST, outcome).noticed == ("gradient",)


@pytest.mark.parametrize(
    ("value", "clean", "status"),
    [
        (1.0, (1.0, 1.0), "same numbers"),
        (1.5, (1.0, 1.0), "survived"),
        (1.0, (1.0, 1.5), "survived"),  # the cell itself is not deterministic
        (1.0, (), "survived"),
    ],
)
def test_equal_numbers_are_those_of_every_clean_run(value: float, clean: tuple[float, ...], status: str) -> None:
    def outcome(number: float) -> Outcome:
        check = CheckRecord(name="gradient", value=number, op="<=", bound=2.0, ok=True)
        return an_outcome(FIRST, "pass", checks=(check,))

    cell = cell_result(FIRST, outcome(value), [mutation_score.numbers(outcome(each)) for each in clean])
    assert MutantResult(mutant=a_mutant(), cells=(cell,)).status == status


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ((None, None), "same numbers"),
        (("", None), "same values"),
        (("", "peft/a.py f"), "unseen"),
    ],
)
def test_values_divide_the_mutants_that_change_no_number(changes: tuple[str | None, ...], status: str) -> None:
    cells = tuple(
        MutatedCell(case=FIRST, verdict="pass", noticed=(), seconds=1.0, same_numbers=True, changes=each)
        for each in changes
    )
    assert MutantResult(mutant=a_mutant(), cells=cells).status == status


def test_a_digest_of_the_numbers_counts() -> None:
    one, other = (an_outcome(FIRST, "pass", facts={f"{FACT}, stage 0, rank 0": text}) for text in ("a", "b"))
    assert mutation_score.numbers(one) != mutation_score.numbers(other)


def test_the_diff_shows_whole_lines() -> None:
    assert a_result("pass").diff == "-   x + y\n+   x"


class FakeRuns:
    """Runs that store the verdict of each case by its id, pass unless given."""

    def __init__(self, **verdicts: str) -> None:
        self.verdicts = verdicts
        self.stored: list[Outcome] = []
        self.rounds: list[list[str]] = []

    def measure(self, _version_set: Any, cases: Sequence[Any], *_: Any, **__: Any) -> None:
        self.rounds.append([case.id for case in cases])
        for case in cases:
            self.stored.append(an_outcome(case.id, self.verdicts.get(case.mutant, "pass")))


@pytest.fixture
def request_(tmp_path: Path) -> mutation.MutationRequest:
    run = RunRequest(sets="2026-11", device="cpu")
    return mutation.MutationRequest(run=run, directory=tmp_path, most=2, watcher=lambda _: Silent())


def test_the_cells_of_a_mutant_start_one_after_the_other(
    request_: mutation.MutationRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = FakeRuns()
    monkeypatch.setattr(mutation, "measure", runs.measure)
    monkeypatch.setattr(mutation, "outcomes", lambda *_: [an_outcome("a-with-mutant-killed", "wrong")])
    cells = [CASES[FIRST], CASES[SECOND]]
    mutation.run_batch(VERSION_SET, [(a_mutant(name), cells) for name in ("killed", "m1", "m2")], request_)
    assert runs.rounds == [[mutated_case(case, name).id for name in ("m1", "m2") for case in cells]]


def test_a_resumed_run_locates_cells_that_were_red_before_the_interruption(
    request_: mutation.MutationRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = FakeRuns()
    cells = [CASES[FIRST], CASES[SECOND]]
    red = mutated_case(cells[1], "killed").id
    located = an_outcome(mutated_case(cells[1], "done").id, "wrong", location=LocationRecord())
    monkeypatch.setattr(mutation, "measure", runs.measure)
    monkeypatch.setattr(mutation, "outcomes", lambda *_: [an_outcome(red, "wrong"), located])
    batch = [(a_mutant(name), cells) for name in ("killed", "done")]
    for locate in (False, True):
        mutation.run_batch(VERSION_SET, batch, replace(request_, locate=locate))
    assert runs.rounds == [[], [red]]


def test_a_spared_cell_is_no_result(request_: mutation.MutationRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    (request_.directory / mutation.MUTATED).mkdir()
    (request_.directory / mutation.MUTATED / "run.json").touch()
    stored = [an_outcome("a-with-mutant-m1", "wrong"), an_outcome("b-with-mutant-m1", "skip", reason=NOTICED)]
    monkeypatch.setattr(store, "read", lambda _: (None, None, stored))
    assert mutation.outcomes(VERSION_SET, request_, mutation.MUTATED) == stored[:1]


def test_a_mutant_is_written_once_for_the_ranks(tmp_path: Path) -> None:
    sample = Sample(mutants=((a_mutant("m1"), ()), (a_mutant("m2"), ())))
    for _ in range(2):
        mutation.note_mutants(sample, tmp_path / "mutants.jsonl")
    assert len((tmp_path / "mutants.jsonl").read_text().splitlines()) == 2


def test_a_mutant_without_a_green_cell_is_not_covered(
    request_: mutation.MutationRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "outcomes", lambda *_: [])
    plan = [(a_mutant("m1"), []), (a_mutant("m2"), [CASES[FIRST]])]
    found = mutation.results(VERSION_SET, plan, {}, request_)
    assert [each.status for each in found] == ["not covered", "not run"]
