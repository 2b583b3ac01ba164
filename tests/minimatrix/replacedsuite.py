"""A suite for ``--with``: the verdict of its cases depends on the source of peft, the modules of which they import."""

from __future__ import annotations

from importlib import import_module, metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fixsuite import FixSuite  # type: ignore[import-not-found]

from cases.grid.profiles import Profile
from cases.space.case import case
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.runtime.wire import Job

SCALED, PLAIN, KNOWN_RED = "lora", "dora", "vera"  # methods of the cases
CASES = {
    each.id: each
    for each in (
        case("replaced", "compares peft's scale"),
        case("replaced", "uses no peft", method=PLAIN),
        case("replaced", "is red, unless peft is repaired", method=KNOWN_RED),
    )
}


class ReplacedSuite(FixSuite):  # type: ignore[misc]
    """The suite of the cases above."""

    cases = CASES
    profiles = MappingProxyType(
        {"quick": Profile("quick", "every case", tuple(CASES.values()), sets="newest")},
    )

    def run(
        self, job: Job, _rank: int, _stage: int, _companion: Callable[[str], Iterator[None]], reporter: Any
    ) -> None:
        if job.kind == "facts":
            reporter.facts({"peft": metadata.version("peft")})
            return
        reporter.phase(Phase.FORWARD)
        method = str(job.options.get("method", SCALED))
        if method == KNOWN_RED and not hasattr(import_module("peft"), "REPAIRED"):
            raise ValueError("not like this")
        scale = getattr(import_module("peft"), "SCALE", 1.0) if method == SCALED else 1.0
        reporter.checks([equal("steps", 3, 3), at_most("gradient", abs(scale - 1.0), 0.06)])


SUITE = ReplacedSuite()
