"""The pages of findings: threads with their status, the words of searches, and no claim beyond them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from matrix.known import findings, known_problems, script_runs
from matrix.known.findings import Finding
from matrix.known.script_runs import ScriptRecord, ScriptRun
from matrix.run.outcome import ErrorRecord
from reports.answers.devices import named_cells
from reports.answers.knowledge import PUBLISHED
from reports.commands.known import PROBLEM_PAGES, pages_of_findings
from reports.render import findings_page
from reports.results import known_results
from reports.results.grid import grid
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.known.known_problems import Problem
    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.commands.known import Draw

    Pages = Callable[..., tuple[str, str]]

SEARCHED = {"on": "2026-11-22", "threads_to": "2026-09", "words": ["dtype of a flat parameter"]}


@pytest.fixture
def pages(
    build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord], build_run: Callable[..., RunRecord]
) -> Pages:
    """Draw both pages of one finding whose red cell is red."""

    def drawn(scripts: ScriptRecord | None = None, **row: Any) -> tuple[str, str]:
        usual = {
            "id": "one",
            "title": "one flat parameter",
            "kind": "bug",
            "meet": "Wrap it.",
            "package": "torch",
            "when": [{"strategy": ["fsdp1"]}],
            "red": [{"case": "red", "sets": ["2024-06"], "shows": "uniform dtype"}],
        }
        raised = ErrorRecord(type="ValueError", message="Must flatten tensors with uniform dtype")
        matrix = grid(build_run(), [build_set()], [build_outcome("red", verdict="fail", error=raised)])
        results = known_results.judged([Finding.model_validate({**usual, **row})], matrix)
        return findings_page.bugs(build_run(), results, scripts), findings_page.by_design(build_run(), results, scripts)

    return drawn


def test_a_finding_without_a_thread_has_the_day_and_words_of_the_search(pages: Pages) -> None:
    found, _ = pages(searched=SEARCHED)
    assert "1 error of released versions: 0 with an upstream thread, and 1 without one that we found" in found
    assert (
        "no thread found on 2026-11-22 among GitHub threads up to 2026-09 with these words: `dtype of a flat parameter`"
        in found
    )


@pytest.mark.parametrize(
    ("thread", "line"),
    [
        ({"status": "open"}, "reported in [a/b\\#1](https://github.com/a/b/issues/1), not fixed"),
        ({"status": "fixed", "release": "peft 0.14"}, "fixed in peft 0.14 by [a/b\\#1]"),
        ({"status": "reported", "about": "closed"}, "reported in [a/b\\#1](https://github.com/a/b/issues/1) (closed)"),
    ],
)
def test_a_thread_is_drawn_with_its_status(pages: Pages, thread: dict[str, str], line: str) -> None:
    found, _ = pages(threads=[{"link": "a/b#1", **thread}])
    assert line in found
    assert "## Reported upstream" in found


def test_behaviour_by_design_is_on_its_own_page(pages: Pages) -> None:
    found, by_design = pages(kind="by design", documented="https://a.b/c")
    assert "one flat parameter" not in found
    assert "## By design" in by_design
    assert "By design: https://a.b/c" in by_design


def test_a_row_that_replaces_internals_says_so(pages: Pages) -> None:
    found, _ = pages(searched=SEARCHED, stock_api=False, note="It sets the state by hand.")
    assert "Not measured with the stock API" in found


def test_a_script_is_linked_with_its_sets_by_answer_and_a_line(pages: Pages) -> None:
    found, _ = pages(scripts=ScriptRecord(runs=(run("2025-12", 0), run("2026-11", 1))), searched=SEARCHED)
    assert (
        "Script [one.py](../../matrix/known/reproducers/one.py): shown on `2026-11`; right on `2025-12`. "
        "On `2026-11`: `found 1, expected 0`"
    ) in found


def test_a_script_that_shows_the_error_needs_no_replaced_part(pages: Pages) -> None:
    scripts = ScriptRecord(runs=(run("2026-11", 1),))
    found, _ = pages(scripts=scripts, searched=SEARCHED, stock_api=False, note="It sets the state by hand.")
    assert "Not measured with the stock API" not in found


@pytest.mark.parametrize(
    ("size", "line"),
    [
        ({"same": "each gradient is twice as large"}, "Size, for any model: each gradient is twice as large"),
        ({"unmeasured": "needs a GPU"}, "Size not measured: needs a GPU"),
        (
            {
                "script": "sizes/models/cap.py eager",
                "shows": "logits 0.11 % off",
                "setting": "SmolLM-135M",
                "versions": "torch 2.9.1",
                "day": "2026-11-26",
            },
            (
                "Size: logits 0.11 % off. SmolLM-135M; "
                "[models/cap.py eager](../../matrix/known/sizes/models/cap.py), torch 2.9.1, 2026-11-26"
            ),
        ),
    ],
)
def test_a_size_is_drawn_with_the_script_that_measured_it(pages: Pages, size: dict[str, str], line: str) -> None:
    found, _ = pages(searched=SEARCHED, size=size)
    assert f"  - {line}\n" in found


def run(version_set: str, exit_code: int) -> ScriptRun:
    return ScriptRun(
        finding="one",
        script="one.py",
        sha256="0",
        set=version_set,
        lock="l",
        exit_code=exit_code,
        line=f"found {exit_code}, expected 0",
        seconds=1.0,
        on=datetime(2026, 11, 22, tzinfo=UTC),
        hardware="cpu: A x 2",
    )


@pytest.mark.parametrize(
    ("folder", "pages", "table"),
    [
        ("findings", pages_of_findings(script_runs.read(PUBLISHED / "findings" / script_runs.FILE)), findings.load()),
        ("known", PROBLEM_PAGES, known_problems.load()),
    ],
)
def test_the_published_pages_are_those_of_the_table_and_the_published_results(
    folder: str, pages: Mapping[str, Draw], table: Sequence[Problem]
) -> None:
    """To draw them again: ``ftmatrix known --findings --results reports/published/findings --out reports/published``.

    Without --findings, and with the results in ``reports/published/known``, for known problems.
    """
    results = load(PUBLISHED / folder)
    judged = known_results.judged(table, results.matrix, named_cells.stored(table, PUBLISHED))
    stored = {name: (PUBLISHED / name).read_text() for name in pages}
    assert {name: draw(results.record, judged) for name, draw in pages.items()} == stored
