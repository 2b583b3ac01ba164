"""The suite with faults planted: every cell should be red. It shows what the checks catch (``ftmatrix selfcheck``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases import suite
from cases.injection.faults import FAULTS
from cases.injection.injected import Planting
from cases.space.case import Case

if TYPE_CHECKING:
    from cases.injection.faults import Ground

preload, impure, needed, allowed = suite.preload, suite.impure, suite.needed, suite.allowed


@dataclass(frozen=True)
class Planted(Case):
    """A case with a fault in it."""

    fault: str = ""

    @property
    def id(self) -> str:
        return f"{self.clean}-with-{self.fault}"

    @property
    def clean(self) -> str:
        return super().id

    def plant(self, at: Ground) -> None:
        FAULTS[self.fault].plant(at)


def planted(case: Case, fault: str) -> Planted:
    return Planted(case.group, FAULTS[fault].what, case.options, fault=fault)


CASES: dict[str, Planted] = {
    each.id: each
    for fault in FAULTS.values()
    for each in (planted(suite.CASES[case], fault.name) for case in fault.cases)
}


planting = Planting(CASES)
companions, acts, run = planting.companions, planting.acts, planting.run
