"""The suite of ``ftmatrix selfcheck --crashes``: cases with a crash or hang injected, and healthy cells after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases import suite
from cases.injection.crashes import CRASHES
from cases.injection.injected import InjectionSuite
from cases.space.case import Case

if TYPE_CHECKING:
    from cases.injection.patching import InjectionPoint

INFIX = {True: "-with-", False: "-after-"}


@dataclass(frozen=True)
class CrashCase(Case):
    """A case with an injected crash, or, unless ``injected``, a healthy case that runs after that crash."""

    crash: str = ""
    injected: bool = True

    @property
    def id(self) -> str:
        return f"{self.clean}{INFIX[self.injected]}{self.crash}"

    @property
    def clean(self) -> str:
        return super().id

    def inject(self, point: InjectionPoint) -> None:
        if self.injected:
            CRASHES[self.crash].inject(point)


def crash_case(clean: str, crash: str, *, injected: bool) -> CrashCase:
    case = suite.CASES[clean]
    return CrashCase(case.group, CRASHES[crash].what, case.options, crash=crash, injected=injected)


class CrashCaseTable(dict[str, CrashCase]):
    """Cases by id. Any case of the ordinary suite may follow any crash."""

    def __missing__(self, name: str) -> CrashCase:
        clean, _, crash = name.rpartition(INFIX[False])
        if clean not in suite.CASES or crash not in CRASHES:
            raise KeyError(name)
        return crash_case(clean, crash, injected=False)


CASES = CrashCaseTable(
    {
        each.id: each
        for crash in CRASHES.values()
        for each in (crash_case(case, crash.name, injected=True) for case in crash.cases)
    }
)
SUITE = InjectionSuite(CASES, suite.PROFILES)
