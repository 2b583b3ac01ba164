"""The red cells that the search looks for a fix of, and their neighbours."""

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
    way: Neighbour | None = None  # to the green cell of the fix
    looked_at: set[str] = field(default_factory=set)
    missed: dict[str, str] = field(default_factory=dict)  # sets that were not looked at, and why
    tried: Counter[str] = field(default_factory=Counter)  # how many of each kind of neighbour
    notes: list[str] = field(default_factory=list)

    @property
    def cell(self) -> str:
        return str(CellKey(self.version_set.key, self.case.id))

    def found(
        self, kind: Kind, way: Neighbour, *, runs: int, witnesses: Sequence[str], blocked: Sequence[str], minimal: bool
    ) -> None:
        self.way = way
        self.fix = self.record.model_copy(
            update={
                "kind": kind,
                "to_set": way.to_set.key,
                "to_case": way.to_case.id,
                "changes": way.changes,
                "runs": runs,
                "witnesses": tuple(witnesses),
                "blocked": tuple(blocked),
                "minimal": minimal,
            }
        )

    def other_sets(self, green: Iterable[str]) -> str:
        """The other sets that the search tried, and the reasons why it left out others."""
        seen = {CellKey.parse(cell).set for cell in self.looked_at} - {self.version_set.key}
        missed = {**dict.fromkeys(green, "not tried"), **self.missed}
        left = [f"{key} ({why})" for key, why in sorted(missed.items()) if key not in seen]
        said = [
            f"other sets: {', '.join(sorted(seen))}" if seen else "",
            f"sets not looked at: {', '.join(left)}" if left else "",
        ]
        return "; ".join(filter(None, said)) or "no set is known on which it is green"

    @property
    def record(self) -> Fix:
        """The fix, or the record that none was found."""
        known = self.fix or Fix(set=self.version_set.key, case=self.case.id, kind=Kind.NONE, tried=0, within="")
        counted = (f"{count} {what}" if count else f"no {what} that can be run" for what, count in self.tried.items())
        within = "; ".join([*counted, *self.notes]) or "nothing was tried yet"
        return known.model_copy(update={"tried": len(self.looked_at), "within": within})


def advice(task: FixTask, case: Case) -> Neighbour:
    change = Change(name="call", old=task.case.options.call or task.case.id, new=case.options.call or case.id)
    return Neighbour(to_set=task.version_set, to_case=case, changes=(change,))


def other_set(task: FixTask, to: VersionSet) -> Neighbour:
    return Neighbour(to_set=to, to_case=task.case, changes=moves(task.version_set, to))
