"""The first page: what this is, what was found, where to go, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cases.space.verdict import Verdict
from reports.results.verdict_style import LOOKS
from reports.site.cause_pages import common_fixes
from reports.site.names import device_name
from reports.site.problem_pages import headlines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reports.site.case_fixes import CellFix
    from reports.site.cause_pages import CausePage
    from reports.site.feature_pages import Feature
    from reports.site.problem_pages import ProblemPage
    from reports.site.published_data import PublishedData
    from reports.site.writer import SiteWriter

EXAMPLES: Final = ("qlora fsdp2", "8 bit dora", "torch 2.8", "use_orig_params=false", "merge nf4")
HEADLINES: Final = 3
CAUSES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    best: str
    settings: str
    against: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonCause:
    """One of the commonest causes of red cells, with their number by device and the fix that most of them have."""

    page: CausePage
    cells: tuple[tuple[str, int], ...]
    fix: str


def write(
    site: SiteWriter,
    published: PublishedData,
    features: Sequence[Feature],
    problems: Sequence[ProblemPage],
    causes: Sequence[CommonCause],
) -> None:
    findings = [each for each in problems if each.is_finding and each.is_bug]
    squares = published.unknown + sum(len(grid.verdicts) for grid in published.grids.values())
    site.page(
        "index.html",
        "home.html.j2",
        examples=EXAMPLES,
        headlines=headlines(problems, published, HEADLINES),
        findings=len(findings),
        silent=sum(each.silent for each in findings),
        devices=[{"name": device_name(device)} for device in published.grids],
        causes=causes,
        all_causes=len({cause for cause in published.cause_of.values() if cause}),
        explained=sum(each.page.cells for each in causes),
        jobs=list(jobs(features)),
        counts=[counts(published, device) for device in published.grids],
        unknown=published.unknown,
        squares=squares,
        red=published.red,
        unexplained=sum(1 for cause in published.cause_of.values() if not cause),
        hardware=sorted({each.hardware for each in published.measurements if each.hardware}),
    )


def common_causes(
    published: PublishedData, causes: Sequence[CausePage], fixes: Mapping[tuple[str, str, str], CellFix]
) -> tuple[CommonCause, ...]:
    """Return the causes that explain most red cells."""
    commonest = sorted((each for each in causes if each.cells), key=lambda each: (-each.cells, each.id))[:CAUSES]
    return tuple(
        CommonCause(
            page=each,
            cells=tuple(
                (device_name(device), len(each.red[device])) for device in published.grids if device in each.red
            ),
            fix=next((fix.words for fix, _ in common_fixes(each, fixes)), ""),
        )
        for each in commonest
    )


def jobs(features: Sequence[Feature]) -> Iterator[dict[str, Any]]:
    for each in features:
        if each.job:
            answers = [
                JobAnswer(
                    best=one.best.set if one.best else "",
                    settings=one.best.settings if one.best else "",
                    against=one.against,
                )
                for one in each.recommended
            ]
            yield {"title": each.title, "path": each.file, "answers": answers}


def counts(published: PublishedData, device: str) -> dict[str, Any]:
    grid = published.grids[device]
    found = published.counts(device)
    return {
        "name": device_name(device),
        "cells": len(grid.verdicts),
        "sets": len(grid.sets),
        "verdicts": [found[Verdict(verdict)] for verdict in LOOKS],
    }
