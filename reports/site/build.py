"""Writes the whole site of a folder of published results."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.space.verdict import Verdict
from matrix.keys import CellKey
from reports.answers.diagnosis import logs, signatures
from reports.results.verdict_style import LOOKS
from reports.site import (
    case_fixes,
    case_pages,
    cause_pages,
    change_pages,
    docs_pages,
    download_pages,
    feature_pages,
    gpu_pages,
    home,
    pair_pages,
    problem_pages,
    published_data,
)
from reports.site.data_sources import SHORT
from reports.site.diagnosis.evidence_data import SignatureEvidence
from reports.site.diagnosis.explain_data import errors_data
from reports.site.matrix_data import matrix_data, reasons_data
from reports.site.names import NAVIGATION, harness
from reports.site.search_data import options_data, pages_data, words_data
from reports.site.stack_data import stack_data
from reports.site.writer import SiteWriter

if TYPE_CHECKING:
    from pathlib import Path

    from reports.site.published_data import PublishedData

OPTION_FILTERS = (
    ("flow", "Flow"),
    ("method", "Method"),
    ("quant", "Quantisation"),
    ("strategy", "Strategy"),
    ("torch_dtype", "Precision"),
    ("front_end", "Front end"),
    ("model", "Model"),
)
# In the order of their use: each takes names of those before it.
DIAGNOSIS_SCRIPTS = (
    *("rules", "logs", "ranks", "frames", "tracebacks", "symptoms", "outside", "blame", "diagnose"),
    *("observed_options", "proven", "consequences", "explain"),
)


@dataclass(frozen=True, kw_only=True)
class Site:
    """What was written: the folder, and its size."""

    folder: Path
    files: int
    size: int
    largest: tuple[int, str]
    cells: int
    seconds: float
    problems: tuple[str, ...] = ()  # parts of runs that could not be read


def build(results: Path, folder: Path) -> Site:
    """Write the site of a folder of published results, of a run directory, or of a folder with several of both.

    Raises:
        UserError: the results cannot be read, or the site cannot be written.
    """
    started = time.monotonic()
    published = published_data.load(results)
    site = SiteWriter(folder, common(published))
    site.static()
    features = feature_pages.features(published)
    problems = problem_pages.load(results)
    causes = cause_pages.pages(published, problems)
    fixes = case_fixes.fixes(published)
    home.write(site, published, features, problems, home.common_causes(published, causes, fixes))
    feature_pages.write(site, features, published)
    problem_pages.write(site, problems)
    cause_pages.write(site, causes, published, fixes)
    site.page("matrix.html", "matrix.html.j2", columns=published.columns, option_filters=OPTION_FILTERS)
    gpu_pages.write(site, published)
    site.data("matrix", matrix_data(published))
    site.data("reasons", reasons_data(published))
    site.data("words", words_data())
    site.data("options", options_data(published))
    site.data("pages", pages_data(features, problems, causes))
    locks = case_pages.write_locks(site, published)
    errors = errors_data()
    site.data("errors", errors)
    evidence = SignatureEvidence(published)
    for row in signatures.load():
        site.data(f"explain/{row.id}", evidence.of(row))
    site.data("consequences", evidence.consequences())
    site.data("stack", stack_data(published, features, problems, locks))
    site.page(
        "error.html",
        "error.html.j2",
        signatures=len(errors["signatures"]),
        whole=logs.ALL_LINES_SIZE // logs.MEGABYTE,
        end=logs.END_SIZE // logs.MEGABYTE,
    )
    site.page("stack.html", "stack.html.j2")
    changes = change_pages.pages(published)
    change_pages.write(site, changes, published)
    pair_pages.write(site)
    download_pages.write(site, published, features, problems, changes)
    docs_pages.write(site)
    cases = case_pages.CaseWriter(
        site=site,
        published=published,
        causes={each.id: each for each in causes},
        fixes=fixes,
        problems=problem_pages.by_case(problems),
        locks=locks,
    )
    for group in published.groups:
        for case in group.cases:
            cases.write(case, group.name)
    return Site(
        folder=folder,
        files=site.files,
        size=site.bytes,
        largest=site.largest,
        cells=sum(len(grid.verdicts) for grid in published.grids.values()),
        seconds=time.monotonic() - started,
        problems=published.problems,
    )


def common(published: PublishedData) -> dict[str, object]:
    """Return the values that all templates may use."""
    return {
        "navigation": NAVIGATION,
        "looks": list(LOOKS.values()),
        "verdicts": {verdict.value: verdict for verdict in Verdict},
        "cell_key": CellKey.parse,
        "first_day": published.first_day,
        "last_day": published.last_day,
        "results": published.digest[:SHORT],
        "harness": harness(),
        "diagnosis_scripts": DIAGNOSIS_SCRIPTS,
    }
