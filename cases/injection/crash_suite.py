"""The suite with disasters planted, and healthy cells that come after them (``ftmatrix selfcheck --disasters``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases import suite
from cases.injection.crashes import DISASTERS
from cases.injection.injected import Planting
from cases.space.case import Case

if TYPE_CHECKING:
    from cases.injection.faults import Ground

preload, impure, needed, allowed = suite.preload, suite.impure, suite.needed, suite.allowed
PROFILES = suite.PROFILES
BETWEEN = {True: "-with-", False: "-after-"}


@dataclass(frozen=True)
class Doomed(Case):
    """A case with a disaster in it, or one that is run ``after`` a disaster and has none."""

    disaster: str = ""
    struck: bool = True

    @property
    def id(self) -> str:
        return f"{self.clean}{BETWEEN[self.struck]}{self.disaster}"

    @property
    def clean(self) -> str:
        return super().id

    def plant(self, at: Ground) -> None:
        if self.struck:
            DISASTERS[self.disaster].plant(at)


def doomed(clean: str, disaster: str, *, struck: bool) -> Doomed:
    case = suite.CASES[clean]
    return Doomed(case.group, DISASTERS[disaster].what, case.options, disaster=disaster, struck=struck)


class Cases(dict[str, Doomed]):
    """Cases by id. Any case of the suite may come after any disaster."""

    def __missing__(self, name: str) -> Doomed:
        clean, _, disaster = name.rpartition(BETWEEN[False])
        if clean not in suite.CASES or disaster not in DISASTERS:
            raise KeyError(name)
        return doomed(clean, disaster, struck=False)


CASES = Cases(
    {
        each.id: each
        for disaster in DISASTERS.values()
        for each in (doomed(case, disaster.name, struck=True) for case in disaster.cases)
    }
)


planting = Planting(CASES)
companions, acts, run = planting.companions, planting.acts, planting.run
