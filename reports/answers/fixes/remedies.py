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

FIXES: Final = "fixes.json"
FEW: Final = 2  # packages that are named; of more, the set is
HOW: Final = {
    Kind.SETTINGS: "set",
    Kind.VERSIONS: "move",
    Kind.ALTERNATIVE: "only by giving something up:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What was found for a cell, or that nothing was, by a search on some machine at some time.

    ``other_code`` says that the red cell that it is told of was measured with another case code than the search had.
    """

    fix: Fix
    found: Fixes
    other_code: bool = False

    @property
    def green(self) -> str:
        """The cell that is green; empty if none was found."""
        return str(CellKey(self.fix.to_set, self.fix.to_case)) if self.fix.to_case else ""

    @property
    def words(self) -> str:
        """In one line: what to change, or how far was looked in vain."""
        if self.fix.kind is Kind.NONE:
            return f"none found ({self.fix.within})"
        if self.fix.kind is Kind.VERSIONS and len(self.fix.changes) > FEW:
            return f"move to the versions of {self.fix.to_set}"
        return f"{HOW[self.fix.kind]} {changes(self.fix)}"

    @property
    def where(self) -> str:
        """On which machine and when the search was."""
        return f"{self.found.hardware}, {self.found.generated:%Y-%m-%d}"

    @property
    def proof(self) -> str:
        """Which cell was green how often, where and when; empty if none was."""
        if not self.green:
            return ""
        less = "" if self.fix.minimal else "; fewer changes may do"
        code = "; found with another case code" if self.other_code else ""
        return f"{self.green}, green in {self.fix.runs} runs on {self.where}{less}{code}"

    def of(self, red: Outcome) -> Remedy:
        """The same, told of a cell that some run measured."""
        return replace(self, other_code=not same_code(self.fix.modules, self.found.code, red.modules, red.code))

    def has_same_code(self, other: Remedy) -> bool:
        return same_code(self.fix.modules, self.found.code, other.fix.modules, other.found.code)

    def edit(self, red: Outcome, version_set: VersionSet, cases: Mapping[str, Case]) -> str:
        """The change as a diff of what a user has; empty if none was found, or no file of ours says it."""
        if not self.green:
            return ""
        before = Stack(pins=pinned(version_set), options=Options().but(**red.options), set=version_set.key)
        return diff(before, with_changes(before, self.fix, options_after(self.fix, before.options, cases)))


def load(folder: Path = PUBLISHED, *, device: str) -> Mapping[str, Remedy]:
    """By red cell (``set__case``), from every ``fixes.json`` below a folder; of several, the newest.

    A search in vain takes nothing back of what was found with another case code.

    Raises:
        UserError: a file has no fixes.
    """
    documents = (fixes.read(path) for path in sorted(folder.rglob(FIXES)))
    ordered = sorted((each for each in documents if each.device == device), key=lambda each: each.generated)
    known: dict[str, Remedy] = {}
    for each in (Remedy(fix=fix, found=document) for document in ordered for fix in document.fixes):
        cell = str(CellKey(each.fix.set, each.fix.case))
        before = known.get(cell)
        if each.green or before is None or not before.green or each.has_same_code(before):
            known[cell] = each
    return known
