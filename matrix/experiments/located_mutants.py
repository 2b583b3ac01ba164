"""Judges whether a location names a module in which the mutated code runs, and the function that is mutated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases.checks.module_hooks import WHOLE
from cases.injection.mutated_modules import BUILT, FACT, SEPARATOR

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome

PART: Final = re.compile(r"\.(base_layer|lora_\w+)$")  # of an adapted layer
NOTHING: Final = "nothing"  # the kind where no module is off, as for a parameter too many
# Where the named module is, seen from the modules with mutated code. An adapted layer counts as one module.
SAME: Final = "same"
MADE: Final = "made"  # a part that the mutated code constructs
CHILD: Final = "child"  # a module that the mutated code calls
DEEPER: Final = "deeper"  # inside such a module: the code of a whole model or block passes on what is wrong
ELSEWHERE: Final = "elsewhere"
UNNAMED: Final = "unnamed"
FUNCTION: Final = "function"  # the named function is the mutated one, and no module runs it where it first differs
OUTSIDE: Final = "outside"  # the mutated code ran in no module's method, and another function is named, or none
PLACES: Final = (SAME, MADE, CHILD, DEEPER, ELSEWHERE, UNNAMED, FUNCTION, OUTSIDE)
OF_FUNCTIONS: Final = ("function", "error")  # kinds whose module is the one that runs the named function
NESTED: Final = ".<locals>."
CONSTRUCTED: Final = "()"  # ends the name of a class, which a module has that is part of no model


@dataclass(frozen=True, kw_only=True)
class LocatedMutant:
    """The module that a located cell names first, and the modules in whose methods the mutated code ran.

    ``built`` are those of them whose constructor ran it. ``against`` is what the cell was compared with instead of the
    reference. ``function`` is the one that the location names, if any, and ``is_changed`` whether it is mutated.
    """

    kind: str
    named: str
    ran_in: tuple[str, ...]
    built: tuple[str, ...] = ()
    against: str = ""
    function: str = ""
    is_changed: bool = False

    @property
    def place(self) -> str:
        """The nearest of ``PLACES``.

        If the named function is the mutated one, the named module runs it, by whichever name: a layer that a script
        calls itself has another one there than in the model.
        """
        nearest = min(map(self.seen_from, self.ran_in), key=PLACES.index, default=OUTSIDE)
        if not self.is_changed or nearest in {SAME, MADE}:
            return nearest
        is_run_by_it = bool(self.ran_in and self.named) and self.kind in OF_FUNCTIONS
        return SAME if is_run_by_it else FUNCTION

    def seen_from(self, mutated: str) -> str:
        found = place(self.named, mutated)
        return MADE if found == CHILD and mutated in self.built else found


def of(outcome: Outcome, changed: str = "") -> LocatedMutant | None:
    """Judge the location of an outcome; ``changed`` is the mutated function, with its file. None without a location."""
    if outcome.location is None:
        return None
    ran_in, built = (modules(outcome, fact) for fact in (FACT, BUILT))
    first = next(iter(outcome.location.beginnings), None)
    kind, named = (NOTHING, "") if first is None else (first.kind, first.module)
    if first is not None and not outcome.location.against:
        named = named or WHOLE  # as traces say it
    function = "" if first is None else first.function
    return LocatedMutant(
        kind=kind,
        named=named,
        ran_in=ran_in,
        built=built,
        against=outcome.location.against,
        function=function,
        is_changed=bool(function) and f"{function}{NESTED}".startswith(f"{changed}{NESTED}"),
    )


def modules(outcome: Outcome, fact: str) -> tuple[str, ...]:
    """The names of modules that the stages of a cell reported as a fact."""
    texts = (str(text) for name, text in outcome.facts.items() if name.startswith(fact))
    return tuple(sorted({name for text in texts for name in text.split(SEPARATOR)} - {""}))


def is_of_class(named: str, mutated: str) -> bool:
    """Return whether both are modules that no model has, of one class; which frames construct them may be unknown."""
    return named.endswith(CONSTRUCTED) and named.rpartition(".")[2] == mutated.rpartition(".")[2]


def place(named: str, mutated: str) -> str:
    """Where a named module is, seen from a mutated one; both by their names in the published checkpoint."""
    if not named:
        return UNNAMED
    named, mutated = PART.sub("", named), PART.sub("", mutated)
    if named == mutated or is_of_class(named, mutated):
        return SAME
    if named == WHOLE:
        return ELSEWHERE
    outer = "" if mutated == WHOLE else mutated
    if outer and not named.startswith(f"{outer}."):
        return ELSEWHERE
    return CHILD if named.rpartition(".")[0] == outer else DEEPER
