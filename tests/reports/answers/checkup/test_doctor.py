"""Inferred problems of versions that were not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.space.options import Options
from matrix.versions.sets import PACKAGES
from reports.answers.checkup import problems
from reports.answers.diagnosis.diagnose import diagnose
from reports.answers.diagnosis.signatures import CauseKind, Signature
from reports.answers.judgement import coverage
from reports.answers.judgement.coverage import MeasuredCells

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reports.results.grid import Grid

JOB = Options().but(strategy="ddp", clip_grad_norm=True)
CLIPPED = "strategy=ddp clip_grad_norm=on"


@pytest.fixture
def inferred(measure: Callable[..., Grid]) -> Callable[..., list[tuple[str, str]]]:
    """Return causes and origins of the problems inferred for an environment with one version of all packages."""

    def infer(table: Mapping[str, Mapping[str, str]], version: str, **moved: str) -> list[tuple[str, str]]:
        versions = {**dict.fromkeys(PACKAGES, version), **moved}
        return [
            (each.why, each.inferred)
            for each in problems.inferred_problems(JOB, versions, MeasuredCells(measure(table)))
        ]

    return infer


def explain(monkeypatch: pytest.MonkeyPatch, *rows: Signature) -> None:
    monkeypatch.setattr(coverage, "diagnose", lambda of: diagnose(of, rows))


def row(name: str, when: str, kind: CauseKind = CauseKind.BUG, **versions: str) -> Signature:
    return Signature(id=name, pattern="no", cause=name, kind=kind, when=when, versions=versions)


def test_a_shared_cause_is_dropped_if_its_signature_excludes_the_versions(
    inferred: Callable[..., list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    explain(monkeypatch, row("of-ddp", "clip_grad_norm=off", torch="!=1.5"), row("of-clipping", "clip_grad_norm=on"))
    both = {"strategy=ddp": "fail", CLIPPED: "fail"}
    table = {"2025-03": both, "2025-06": both}
    where = "2025-03 and 2025-06, between which these versions lie"
    assert inferred(table, "1.5") == [("of-clipping", where)]
    assert inferred(table, "1.6") == [("of-ddp", where), ("of-clipping", where)]


def by_number(*verdicts: str) -> dict[str, dict[str, str]]:
    """Sets that move torch from a dated set, so that no dated set encloses an environment."""
    return {f"2025-01+torch{number}.0": {CLIPPED: verdict} for number, verdict in enumerate(verdicts, start=1)}


def test_a_failure_of_all_sets_is_inferred_between_their_versions_only(
    inferred: Callable[..., list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    explain(monkeypatch, row("any", ""))
    table = by_number("fail", "fail", "fail")
    assert inferred(table, "1.0", torch="2.5") == [("any", "all 3 sets of versions on which such a case ran")]
    assert inferred(table, "1.0", torch="3.5") == []
    assert inferred(table, "1.0", torch="2.5", peft="1.1") == []
    assert inferred(by_number("fail", "pass", "fail"), "1.0", torch="2.5") == []


def test_sets_that_differ_in_unused_packages_only_count_once(
    inferred: Callable[..., list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    explain(monkeypatch, row("any", ""))
    table = {**by_number("fail", "fail"), "2025-01+trl3.0": {CLIPPED: "fail"}}
    assert inferred(table, "1.0", torch="1.5") == []


def test_sets_whose_machine_caused_the_failure_are_counted(
    inferred: Callable[..., list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    explain(monkeypatch, row("any", "", torch="<4"), row("machine", "", CauseKind.MACHINE, torch=">=4"))
    ((_, where),) = inferred(by_number("fail", "fail", "fail", "fail"), "1.0", torch="2.5")
    assert where.startswith("3 of 4 sets of versions on which such a case ran; on the others it is red because")
    assert inferred(by_number("fail", "fail", "fail", "fail"), "1.0", torch="3.5") == []
