"""The tasks of a fix search: red cells and their neighbours."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.keys import CellKey
from matrix.search.fixes import Change, Fix, Kind
from matrix.search.moves import moves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cases.space.case import Case
    from matrix.versions.sets import VersionSet


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A cell that differs from a red cell by some changes."""

    to_set: VersionSet
    to_case: Case
    changes: tuple[Change, ...]

    @property
    def cell(self) -> str:
        return str(CellKey(self.to_set.key, self.to_case.id))


@dataclass(kw_only=True, eq=False)
class FixTask:
    """A red cell, and the state of the search for its fix."""

    version_set: VersionSet
    case: Case
    fix: Fix | None = None
    neighbour: Neighbour | None = None  # the green cell of the fix
    measured: set[str] = field(default_factory=set)  # cells with a result
    skipped: dict[str, str] = field(default_factory=dict)  # reasons by set that the search did not try
    tried: Counter[str] = field(default_factory=Counter)  # number of cells by kind of neighbour
    notes: list[str] = field(default_factory=list)

    @property
    def cell(self) -> str:
        return str(CellKey(self.version_set.key, self.case.id))

    def set_fix(
        self,
        kind: Kind,
        neighbour: Neighbour,
        *,
        runs: int,
        witnesses: Sequence[str],
        blocked: Sequence[str],
        minimal: bool,
    ) -> None:
        """Store the proven fix."""
        self.neighbour = neighbour
        self.fix = self.record.model_copy(
            update={
                "kind": kind,
                "to_set": neighbour.to_set.key,
                "to_case": neighbour.to_case.id,
                "changes": neighbour.changes,
                "runs": runs,
                "witnesses": tuple(witnesses),
                "blocked": tuple(blocked),
                "minimal": minimal,
            }
        )

    def other_sets(self, green: Iterable[str]) -> str:
        """The other sets that the search tried, and the reasons why it skipped others."""
        tried = {CellKey.parse(cell).set for cell in self.measured} - {self.version_set.key}
        skipped = {**dict.fromkeys(green, "not tried"), **self.skipped}
        left_out = [f"{key} ({why})" for key, why in sorted(skipped.items()) if key not in tried]
        parts = [
            f"other sets: {', '.join(sorted(tried))}" if tried else "",
            f"sets not tried: {', '.join(left_out)}" if left_out else "",
        ]
        return "; ".join(filter(None, parts)) or "no set is known to be green"

    @property
    def record(self) -> Fix:
        """The fix, or a record of a search without a fix."""
        known = self.fix or Fix(set=self.version_set.key, case=self.case.id, kind=Kind.NONE, tried=0, within="")
        numbers = (f"{count} {what}" if count else f"no {what} that can run" for what, count in self.tried.items())
        within = "; ".join([*numbers, *self.notes]) or "nothing tried yet"
        return known.model_copy(update={"tried": len(self.measured), "within": within})


def advice(task: FixTask, case: Case) -> Neighbour:
    """The recommended use of the interface on the same set."""
    change = Change(name="call", old=task.case.options.call or task.case.id, new=case.options.call or case.id)
    return Neighbour(to_set=task.version_set, to_case=case, changes=(change,))


def other_set(task: FixTask, to: VersionSet) -> Neighbour:
    """The same case on another set."""
    return Neighbour(to_set=to, to_case=task.case, changes=moves(task.version_set, to))
