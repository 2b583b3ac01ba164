"""Judges whether the module that a location names first is one in which the mutated code runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases.injection.mutated_modules import FACT, SEPARATOR, WHOLE

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome

PART: Final = re.compile(r"\.(base_layer|lora_\w+)$")  # of an adapted layer
NOTHING: Final = "nothing"  # the kind where no module is off, as for a parameter too many
# Where the named module is, seen from the modules with mutated code. An adapted layer counts as one module.
SAME: Final = "same"
CHILD: Final = "child"  # a module that the mutated code calls
DEEPER: Final = "deeper"  # inside such a module: the code of a whole model or block passes on what is wrong
ELSEWHERE: Final = "elsewhere"
UNNAMED: Final = "unnamed"
PLACES: Final = (SAME, CHILD, DEEPER, ELSEWHERE, UNNAMED)


@dataclass(frozen=True, kw_only=True)
class LocatedMutant:
    """The module that a located cell names first, and the modules in whose methods the mutated code ran."""

    kind: str
    named: str
    ran_in: tuple[str, ...]

    @property
    def place(self) -> str:
        """The nearest of ``PLACES``."""
        return min((place(self.named, each) for each in self.ran_in), key=PLACES.index, default=UNNAMED)


def of(outcome: Outcome) -> LocatedMutant | None:
    """None for a cell that was not located, or whose mutated code ran outside of modules."""
    ran_in = {
        name for fact, text in outcome.facts.items() if fact.startswith(FACT) for name in str(text).split(SEPARATOR)
    }
    if outcome.location is None or not ran_in - {""}:
        return None
    first = next(iter(outcome.location.beginnings), None)
    kind, named = (NOTHING, "") if first is None else (first.kind, first.module)
    return LocatedMutant(kind=kind, named=named, ran_in=tuple(sorted(ran_in - {""})))


def place(named: str, mutated: str) -> str:
    """Where a named module is, seen from a mutated one; both by their names in the published checkpoint."""
    if not named:
        return UNNAMED
    named, mutated = PART.sub("", named), PART.sub("", mutated)
    outer = "" if mutated == WHOLE else mutated
    if named == outer:
        return SAME
    if outer and not named.startswith(f"{outer}."):
        return ELSEWHERE
    return CHILD if named.rpartition(".")[0] == outer else DEEPER
