"""Any case of the ordinary suite runs with any mutant, and cannot spoil what other cells read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cases.checks import module_traces
from cases.injection import mutated_modules
from cases.injection.mutant_suite import NONE, NOTICED, SUITE, is_watched, mutated_case, own_cache
from cases.runtime import deviations
from cases.runtime.wire import CellReport, Job
from cases.space.verdict import Verdict
from cases.suite import CASES

if TYPE_CHECKING:
    from pathlib import Path

CASE = CASES["train-lora-ddp-bf16"]


def a_job(tmp_path: Path, **options: Any) -> Job:
    folder, cache = str(tmp_path / "job"), str(tmp_path / "cache")
    return Job("cell", "x", 1, "cpu", folder=folder, cache=cache, options=options)


def test_the_id_names_the_case_and_the_mutant() -> None:
    mutated = mutated_case(CASE, "a1")
    assert (mutated.id, mutated.clean) == ("train-lora-ddp-bf16-with-mutant-a1", CASE.id)


def test_an_id_alone_finds_the_case() -> None:
    assert SUITE.cases["train-lora-ddp-bf16-with-mutant-a1"] == mutated_case(CASE, "a1")


def test_an_unknown_case_is_no_mutated_case() -> None:
    with pytest.raises(KeyError):
        SUITE.case("no-such-case-with-mutant-a1")


def test_a_job_whose_stack_saves_a_shared_checkpoint_has_its_own_cache(tmp_path: Path) -> None:
    assert own_cache(a_job(tmp_path, prequantised=True)).cache == str(tmp_path / "job" / "cache")


def test_other_jobs_share_the_cache(tmp_path: Path) -> None:
    assert own_cache(a_job(tmp_path)).cache == str(tmp_path / "cache")


@pytest.mark.parametrize(
    ("verdict", "mutant", "settled"),
    [
        (Verdict.WRONG, "m1", True),
        (Verdict.HANG, "m1", True),
        (Verdict.PASS, "m1", False),
        (Verdict.SKIP, "m1", False),
        (Verdict.FAIL, NONE, False),  # the unchanged stack: every cell must show that it is green
    ],
)
def test_a_red_cell_spares_the_others_of_its_mutant(
    tmp_path: Path,
    verdict: Verdict,
    mutant: str,
    settled: bool,  # noqa: FBT001 - a row
) -> None:
    one, other = (mutated_case(CASES[name], mutant).id for name in ("train-lora-single-fp32", "train-lora-ddp-bf16"))
    SUITE.note(CellReport(one, verdict), tmp_path)
    assert SUITE.why_settled(other, tmp_path) == (NOTICED if settled else "")
    assert not SUITE.why_settled(mutated_case(CASES["train-lora-single-fp32"], "m2").id, tmp_path)


@pytest.mark.parametrize(
    ("requested", "watched"),
    [
        ([], False),
        ([mutated_modules.REQUESTED], True),
        ([mutated_modules.REQUESTED, deviations.REQUESTED], False),
        ([mutated_modules.REQUESTED, module_traces.REQUESTED], False),
    ],
)
def test_mutated_code_is_watched_once(monkeypatch: pytest.MonkeyPatch, requested: list[str], *, watched: bool) -> None:
    for name in (mutated_modules.REQUESTED, deviations.REQUESTED, module_traces.REQUESTED):
        monkeypatch.delenv(name, raising=False)
    for name in requested:
        monkeypatch.setenv(name, "1")
    assert is_watched() is watched
