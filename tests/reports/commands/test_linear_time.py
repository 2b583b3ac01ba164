"""The processor time to render and to explain hostile text grows linearly with its length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.run.outcome import RunRecord
from reports.render.write import render
from reports.results.loading import results
from reports.site import pair_pages
from reports.site.build import build
from tests.browser.made_up_results import NOON, a_set, an_outcome, write
from tests.growing_text import UNITS, check_linear, long_lines, mixture, processor_seconds, text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome

    Command = Callable[..., tuple[int, str, str]]

# Characters of the shortest of three texts: of each kind of text in each field of a cell, of one line, and of a log,
# of which `explain` reads all lines up to four times as many.
FIELD, LINE, LOG = 25_000, 2_500_000, 1_000_000
ON_SITE = 50_000  # in each field of a cell: pages show less of a text than reports do


def red_cells(size: int) -> tuple[Outcome, ...]:
    """Return a red cell for each kind of text, which has the text in every field that takes one."""
    return tuple(hostile(number, text_of(kind, size)) for number, kind in enumerate(UNITS))


def hostile(number: int, text: str) -> Outcome:
    bare = an_outcome(f"train-hostile-{number}", a_set(0).key, 0, text=text)
    options, facts = {**bare.options, "never_heard_of": text}, {**bare.facts, "fact": text}
    return bare.model_copy(update={"options": options, "facts": facts})


def red_line(size: int) -> tuple[Outcome, ...]:
    """Return a red cell whose message and traceback are one line each."""
    bare = an_outcome("train-long", a_set(0).key, 0)
    assert bare.error is not None
    line = text_of("one line of markup", size)
    return (bare.model_copy(update={"error": bare.error.model_copy(update={"message": line, "traceback": line})}),)


def report(cells: tuple[Outcome, ...], folder: Path) -> float:
    """Return the seconds to write the page, matrix.md and the other reports of a run."""
    record = RunRecord(
        harness="0", code="0", started=NOON, device="cpu", request={}, planned=(), hardware="cpu: made up x 2"
    )
    found = results(record, [a_set(0)], cells)
    return processor_seconds(lambda: render(found, folder, now=NOON))


def test_the_reports_of_a_run(tmp_path: Path) -> None:
    report(red_cells(1), tmp_path)  # what is loaded once
    check_linear(lambda size: report(red_cells(size), tmp_path), FIELD)


def test_the_reports_of_a_run_with_lines_of_ten_megabytes(tmp_path: Path) -> None:
    report(red_cells(1), tmp_path)
    check_linear(lambda size: report(red_line(size), tmp_path), LINE)


def site(cells: tuple[Outcome, ...], folder: Path) -> float:
    """Return the seconds to write the site of a folder of results."""
    write(folder / "results", cells, (a_set(0),))
    return processor_seconds(lambda: build(folder / "results", folder / "site"))


@pytest.fixture
def no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pages that take most of the time: they show the map of the API, which no result changes."""
    monkeypatch.setattr(pair_pages, "write", lambda _: None)


@pytest.mark.usefixtures("no_pairs")
def test_the_site(tmp_path: Path) -> None:
    site(red_cells(1), tmp_path)
    check_linear(lambda size: site(red_cells(size), tmp_path), ON_SITE)


@pytest.mark.usefixtures("no_pairs")
def test_the_site_with_lines_of_ten_megabytes(tmp_path: Path) -> None:
    site(red_cells(1), tmp_path)
    check_linear(lambda size: site(red_line(size), tmp_path), LINE)


def test_the_explanation_of_a_log(tmp_path: Path, ftmatrix: Command) -> None:
    check_linear(lambda size: explanation(mixture(size), tmp_path / "log", ftmatrix), LOG)


def test_the_explanation_of_lines_of_ten_megabytes(tmp_path: Path, ftmatrix: Command) -> None:
    check_linear(lambda size: explanation(long_lines(size), tmp_path / "log", ftmatrix), LINE)


def explanation(log: str, path: Path, ftmatrix: Command) -> float:
    path.write_text(log, encoding="utf-8")
    return processor_seconds(lambda: ftmatrix("explain", str(path)))
