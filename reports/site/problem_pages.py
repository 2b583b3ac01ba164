"""A page per finding and per known problem, which reads as a maintainer's bug report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from matrix import documents
from matrix.errors import UserError
from matrix.known.error_size import FOLDER as SIZES
from matrix.known.findings import PACKAGED
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from reports.site.published_data import PublishedData
    from reports.site.writer import SiteWriter

FILES: Final = (("finding", "findings.json.gz"), ("problem", "known_problems.json.gz"))
SCRIPTS: Final = PACKAGED.parent / "reproducers"
NARROW: Final = 10  # more facts than a condition has
# What only findings have.
DEFAULTS: Final = {
    "kind": "bug",
    "package": "",
    "versions": "",
    "meet": "",
    "threads": (),
    "searched": None,
    "documented": "",
    "stock_api": True,
    "numbers_only": False,
    "size": None,
}


@dataclass(frozen=True, kw_only=True)
class ProblemPage:
    """A row of ``findings.json.gz`` or ``known_problems.json.gz``."""

    sort: str
    row: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def title(self) -> str:
        return str(self.row["title"])

    @property
    def silent(self) -> bool:
        return bool(self.row.get("silent"))

    @property
    def is_finding(self) -> bool:
        return self.sort == "finding"

    @property
    def is_bug(self) -> bool:
        return bool(self.row.get("kind", "bug") == "bug")

    @property
    def kind(self) -> str:
        if not self.is_finding:
            return "Known problem"
        return "Finding" if self.is_bug else "By design"

    @property
    def path(self) -> str:
        return f"{self.sort}/{file_name(self.id)}.html"

    @property
    def meet(self) -> str:
        return str(self.row.get("meet") or self.row.get("note") or "")

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The red cells that show it."""
        return [each for each in self.row["red"] if each["as_said"]]

    @cached_property
    def cases(self) -> frozenset[str]:
        return frozenset(each["case"] for each in self.shown)

    @property
    def sets(self) -> list[str]:
        return list(dict.fromkeys(each["set"] for each in self.shown))

    @property
    def script(self) -> str:
        """The reproducer of a finding; empty if there is none."""
        path = next(iter(sorted(SCRIPTS.rglob(f"{self.id}.py"))), None) if self.is_finding else None
        return path.read_text(encoding="utf-8") if path else ""


def load(folder: Path) -> tuple[ProblemPage, ...]:
    """Return the findings and known problems that a folder has, silent ones first.

    Raises:
        UserError: a file is no such table.
    """
    rows = [ProblemPage(sort=sort, row={**DEFAULTS, **row}) for sort, name in FILES for row in rows_of(folder / name)]
    return tuple(sorted(rows, key=lambda each: (not each.is_finding, not each.silent, not each.is_bug)))


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    try:
        yield from json.loads(documents.content(path))["problems"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: not a table of problems; write it again with ftmatrix known") from None


def headlines(problems: Iterable[ProblemPage], published: PublishedData, count: int) -> list[ProblemPage]:
    """Return the findings to show first: silent bugs with the widest conditions, red on the newest or on most sets.

    They are of different packages, so that they do not tell the same story.
    """
    newest = max((column.as_of for column in published.columns if column.is_main), default="")
    latest = {record.key for column in published.columns if column.as_of == newest for record in column.sets.values()}

    def weight(each: ProblemPage) -> tuple[int, bool, int]:
        return narrowness(each), latest.isdisjoint(each.sets), -len(each.sets)

    bugs = [
        each for each in problems if each.is_finding and each.is_bug and each.silent and not each.row["numbers_only"]
    ]
    chosen: dict[str, ProblemPage] = {}
    for each in sorted(bugs, key=weight):
        chosen.setdefault(each.row["package"], each)
    return list(chosen.values())[:count]


def narrowness(problem: ProblemPage) -> int:
    """Return the number of facts that the widest condition of a finding needs.

    One that only a user's own code or only a CPU meets is narrower than any other.
    """
    conditions = problem.row.get("when", ())
    facts = (
        len(each) + NARROW * ("own_code" in each) + NARROW * (each.get("device") == ["cpu"]) for each in conditions
    )
    return min(facts, default=NARROW)


def by_case(problems: Iterable[ProblemPage]) -> dict[str, list[ProblemPage]]:
    found: dict[str, list[ProblemPage]] = {}
    for each in problems:
        for case in each.cases:
            found.setdefault(case, []).append(each)
    return found


def write(site: SiteWriter, problems: tuple[ProblemPage, ...]) -> None:
    findings = [each for each in problems if each.is_finding]
    site.page(
        "findings.html",
        "findings.html.j2",
        silent=[each for each in findings if each.silent and each.is_bug],
        loud=[each for each in findings if not each.silent and each.is_bug],
        design=[each for each in findings if not each.is_bug],
        known=[each for each in problems if not each.is_finding],
    )
    for path in SIZES.rglob("*.py"):
        site.text(f"download/sizes/{path.relative_to(SIZES).as_posix()}", path.read_text(encoding="utf-8"))
    for each in problems:
        site.page(each.path, "problem.html.j2", problem=each)
        if each.script:
            site.text(f"download/reproducers/{file_name(each.id)}.py", each.script)
