"""The suite of cases with a fault injected (``ftmatrix selfcheck``): every cell should be red."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases import suite
from cases.injection.faults import FAULTS
from cases.injection.injected import InjectionSuite
from cases.space.case import Case

if TYPE_CHECKING:
    from cases.injection.patching import InjectionPoint


@dataclass(frozen=True)
class FaultyCase(Case):
    """A case with a fault injected."""

    fault: str = ""

    @property
    def id(self) -> str:
        return f"{self.clean}-with-{self.fault}"

    @property
    def clean(self) -> str:
        return super().id

    def inject(self, point: InjectionPoint) -> None:
        FAULTS[self.fault].inject(point)


def case_with_fault(case: Case, fault: str) -> FaultyCase:
    return FaultyCase(case.group, FAULTS[fault].what, case.options, fault=fault)


CASES: dict[str, FaultyCase] = {
    each.id: each
    for fault in FAULTS.values()
    for each in (case_with_fault(suite.CASES[case], fault.name) for case in fault.cases)
}
SUITE = InjectionSuite(CASES)
