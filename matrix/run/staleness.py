"""Counts the results whose case code has changed since, so that they have to be measured again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.run.code_digest import NO_CODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matrix.run.code_digest import CaseCode
    from matrix.run.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Counts of cells by the state of the case code that produced their last outcome.

    ``stale`` holds, by cell, the modules that changed. ``unknown`` are cells whose outcome does not name its modules:
    it was stored before schema 3.
    """

    current: int
    unknown: int
    stale: Mapping[str, tuple[str, ...]]

    @property
    def changed_modules(self) -> Counter[str]:
        """The number of stale cells by changed module."""
        return Counter(name for names in self.stale.values() for name in names)


def staleness(outcomes: Iterable[Outcome], code: CaseCode) -> Staleness:
    """Compare the last outcome of each cell with the case code."""
    last = {each.cell: each for each in outcomes}
    known = {cell: each for cell, each in last.items() if each.modules or each.code == NO_CODE}
    changed = {cell: code.changed(each.modules) for cell, each in known.items()}
    stale = {cell: names for cell, names in changed.items() if names}
    return Staleness(current=len(known) - len(stale), unknown=len(last) - len(known), stale=stale)
