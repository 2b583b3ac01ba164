"""The matrix as compact data for the browser: a letter a square, and lists that squares refer to by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cases.space.verdict import RED, Verdict
from reports.results.verdict_style import LOOKS, UNKNOWN
from reports.results.wording import headline
from reports.site.columns import IN_HEAD
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reports.site.columns import MatrixColumn
    from reports.site.published_data import PublishedData

LETTERS: Final[Mapping[Verdict, str]] = {
    Verdict.PASS: "p",
    Verdict.WRONG: "w",
    Verdict.FAIL: "f",
    Verdict.HANG: "h",
    Verdict.CRASH: "c",
    Verdict.BLOCKED: "b",
    Verdict.SKIP: "s",
    Verdict.LOST: "l",
}
NOTHING: Final = "."
# Options that filters offer; the text filter reaches all others.
FILTERED: Final = ("flow", "method", "quant", "strategy", "torch_dtype", "front_end", "model")


def matrix_data(published: PublishedData) -> dict[str, Any]:
    """Return the columns, the rows and the squares. A row has a letter per column for each device."""
    causes = sorted({cause for cause in published.cause_of.values() if cause})
    numbers = {cause: number for number, cause in enumerate(causes)}
    cases = [(place, case) for place, group in enumerate(published.groups) for case in group.cases]
    return {
        "devices": list(published.grids),
        "letters": {letter: looks(verdict) for verdict, letter in LETTERS.items()} | {NOTHING: unknown()},
        "red": "".join(LETTERS[verdict] for verdict in Verdict if verdict in RED),
        "columns": [column_data(column) for column in published.columns],
        "groups": [group.name for group in published.groups],
        "causes": causes,
        "options": list(FILTERED),
        "rows": [row_data(published, place, case) for place, case in cases],
        "squares": {
            device: ["".join(letters(published, device, case)) for _, case in cases] for device in published.grids
        },
        "cellCauses": cell_causes(published, [case for _, case in cases], numbers),
    }


def looks(verdict: Verdict) -> list[str]:
    look = LOOKS[verdict]
    return [look.css, look.sign, look.word, look.meaning]


def unknown() -> list[str]:
    return [UNKNOWN.css, UNKNOWN.sign, UNKNOWN.word, UNKNOWN.meaning]


def column_data(column: MatrixColumn) -> dict[str, Any]:
    return {
        "key": column.key,
        "date": column.as_of,
        "main": column.is_main,
        "near": column.near.value if column.near else "",
        "sets": {device: record.key for device, record in column.sets.items()},
        "versions": {name: column.versions(name) for name in IN_HEAD},
        "others": {name: column.versions(name) for name in column.others()},
    }


def row_data(published: PublishedData, place: int, case: str) -> list[Any]:
    """Return the case, the number of its group, its filtered options, and its file if it has another name."""
    outcomes = published.rows_by_case.get(case, [])
    options = outcomes[-1][1].options if outcomes else {}
    file = file_name(case)
    row = [case, place, [str(options[name]) if name in options else "" for name in FILTERED]]
    return row if file == case else [*row, file]


def letters(published: PublishedData, device: str, case: str) -> Iterator[str]:
    grid = published.grids[device]
    for column in published.columns:
        record = column.sets.get(device)
        verdict = grid.verdicts.get((case, record.key)) if record is not None else None
        yield NOTHING if verdict is None else LETTERS[verdict]


def cell_causes(published: PublishedData, cases: list[str], numbers: Mapping[str, int]) -> dict[str, list[list[int]]]:
    """Return rows, columns and causes of the explained red squares, as lists that belong together, by device."""
    rows = {case: number for number, case in enumerate(cases)}
    columns = {
        (device, record.key): number
        for number, column in enumerate(published.columns)
        for device, record in column.sets.items()
    }
    found: dict[str, list[list[int]]] = {device: [[], [], []] for device in published.grids}
    for (device, case, key), cause in published.cause_of.items():
        if cause:
            for values, value in zip(found[device], (rows[case], columns[device, key], numbers[cause]), strict=True):
                values.append(value)
    return found


def reasons_data(published: PublishedData) -> dict[str, dict[str, str]]:
    """Return the reason of each square that is not green, by device and ``set__case``."""
    return {
        device: {
            outcome.cell: headline(outcome, 160)
            for cell in grid.measured()
            if grid.verdicts[cell] is not Verdict.PASS
            for outcome in [grid.cells[cell]]
        }
        for device, grid in published.grids.items()
    }
