"""A red cell that a fix is looked for, and the ways from it to other cells."""

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
class Way:
    """From a red cell to another one."""

    to_set: VersionSet
    to_case: Case
    changes: tuple[Change, ...]

    @property
    def cell(self) -> str:
        return str(CellKey(self.to_set.key, self.to_case.id))


@dataclass(kw_only=True, eq=False)
class Quest:
    """A red cell, and how far the search for its fix has come."""

    version_set: VersionSet
    case: Case
    fix: Fix | None = None
    way: Way | None = None  # to the green cell of the fix
    looked_at: set[str] = field(default_factory=set)
    missed: dict[str, str] = field(default_factory=dict)  # sets that were not looked at, and why
    tried: Counter[str] = field(default_factory=Counter)  # how many of each kind of neighbour
    notes: list[str] = field(default_factory=list)

    @property
    def cell(self) -> str:
        return str(CellKey(self.version_set.key, self.case.id))

    def found(
        self, kind: Kind, way: Way, *, runs: int, witnesses: Sequence[str], blocked: Sequence[str], minimal: bool
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
        """What was seen of other sets, ``green`` among them; and why not more was."""
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
        """What was found, or that nothing was, within what was looked at."""
        known = self.fix or Fix(set=self.version_set.key, case=self.case.id, kind=Kind.NONE, tried=0, within="")
        counted = (f"{count} {what}" if count else f"no {what} that can be run" for what, count in self.tried.items())
        within = "; ".join([*counted, *self.notes]) or "nothing was tried yet"
        return known.model_copy(update={"tried": len(self.looked_at), "within": within})


def advice(quest: Quest, case: Case) -> Way:
    change = Change(name="call", old=quest.case.options.call or quest.case.id, new=case.options.call or case.id)
    return Way(to_set=quest.version_set, to_case=case, changes=(change,))


def other_set(quest: Quest, to: VersionSet) -> Way:
    return Way(to_set=to, to_case=quest.case, changes=moves(quest.version_set, to))
