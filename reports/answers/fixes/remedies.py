"""Looks up the stored results of fix searches by red cell, and describes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cases.space.options import Options
from matrix.keys import CellKey
from matrix.run.code_digest import same_code
from matrix.search import fixes
from matrix.search.fixes import Kind
from matrix.search.moves import pinned
from reports.answers.knowledge import PUBLISHED
from reports.answers.scripts.edits import Stack, changes, diff, options_after, with_changes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.outcome import Outcome
    from matrix.search.fixes import Fix, Fixes
    from matrix.versions.sets import VersionSet

FIXES: Final = "fixes.json"  # in a run directory
PUBLISHED_FIXES: Final = "fixes.json.gz"
FEW: Final = 2  # most packages to list by name; a move of more names the set
HOW: Final = {
    Kind.SETTINGS: "set",
    Kind.VERSIONS: "move",
    Kind.ALTERNATIVE: "only by giving something up:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The result of a fix search for a red cell, with or without a fix.

    ``other_code`` is True if the red cell was measured with another case code than the search used.
    """

    fix: Fix
    found: Fixes
    other_code: bool = False

    @property
    def green(self) -> str:
        """The green cell; empty if the search found none."""
        return str(CellKey(self.fix.to_set, self.fix.to_case)) if self.fix.to_case else ""

    @property
    def words(self) -> str:
        """One line with the changes, or with the extent of a search without result."""
        if self.fix.kind is Kind.NONE:
            return f"none found ({self.fix.within})"
        if self.fix.kind is Kind.VERSIONS and len(self.fix.changes) > FEW:
            return f"move to the versions of {self.fix.to_set}"
        return f"{HOW[self.fix.kind]} {changes(self.fix)}"

    @property
    def where(self) -> str:
        """The machine and the day of the search."""
        return f"{self.found.hardware}, {self.found.generated:%Y-%m-%d}"

    @property
    def searched(self) -> str:
        """What the search that found the fix tried, whether or not the fix ran again since."""
        within = self.fix.within.removeprefix(f"{fixes.ALONE}; ")
        return within if within != self.fix.within else f"searched on {self.where}: {within}"

    @property
    def proof(self) -> str:
        """The green cell with its runs, machine and day; empty if there is none."""
        if not self.green:
            return ""
        less = "" if self.fix.minimal else "; fewer changes may do"
        code = "; found with another case code" if self.other_code else ""
        return f"{self.green}, green in {self.fix.runs} runs on {self.where}{less}{code}"

    def for_cell(self, red: Outcome) -> Remedy:
        """Return this remedy for a measured red cell."""
        return replace(self, other_code=not same_code(self.fix.modules, self.found.code, red.modules, red.code))

    def has_same_code(self, other: Remedy) -> bool:
        return same_code(self.fix.modules, self.found.code, other.fix.modules, other.found.code)

    def edit(self, red: Outcome, version_set: VersionSet, cases: Mapping[str, Case]) -> str:
        """Return the change as a diff of the user's files; empty without a fix or without a file that expresses it."""
        if not self.green:
            return ""
        before = Stack(pins=pinned(version_set), options=Options().but(**red.options), set=version_set.key)
        return diff(before, with_changes(before, self.fix, options_after(self.fix, before.options, cases)))


def files(folder: Path) -> tuple[Path, ...]:
    """Return the files of fixes below a folder, by path."""
    return tuple(sorted(path for path in folder.rglob(f"{FIXES}*") if path.name in {FIXES, PUBLISHED_FIXES}))


def load(folder: Path = PUBLISHED, *, device: str) -> Mapping[str, Remedy]:
    """Return the newest remedy of each red cell (``set__case``) from the files of fixes below a folder.

    A newer search without result replaces a fix only if both used the same case code.

    Raises:
        UserError: a file does not contain fixes.
    """
    documents = (fixes.read(path) for path in files(folder))
    ordered = sorted((each for each in documents if each.device == device), key=lambda each: each.generated)
    known: dict[str, Remedy] = {}
    for each in (Remedy(fix=fix, found=document) for document in ordered for fix in document.fixes):
        cell = str(CellKey(each.fix.set, each.fix.case))
        before = known.get(cell)
        if each.green or before is None or not before.green or each.has_same_code(before):
            known[cell] = each
    return known
