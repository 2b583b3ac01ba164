"""Chooses the cells that could notice a mutant, as not all that execute its code can run."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from cases.api import CALLS
from matrix.run import location

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cases.space.case import Case
    from matrix.experiments.executed_lines import TracedCell
    from matrix.experiments.mutants import Mutant, StackFile

WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
STEM: Final = 5  # letters of a word that count, without the s of a plural: decay and decayed, norm and norms are alike


@dataclass(frozen=True)
class Reach:
    """What a cell executes of the code around a mutant.

    ``focus`` is the share of the mutant's file in the lines that the cell executes: a job that does little else than
    what the file does is likely to look at it. ``distances`` has the executed lines of the mutant's function, and how
    far each is from the mutant.
    """

    focus: float
    distances: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Coverage:
    """The cells that execute each line of a file, the fastest first."""

    by_file: Mapping[str, Mapping[int, list[int]]]
    cells: Sequence[TracedCell]
    totals: Sequence[int]  # the executed lines of each cell

    @classmethod
    def of(cls, cells: Sequence[TracedCell]) -> Coverage:
        found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, cell in enumerate(cells):
            for file, lines in cell.files.items():
                for line in lines:
                    found[file][line].append(number)
        return cls(found, cells, [sum(map(len, cell.files.values())) for cell in cells])

    def has(self, mutant: Mutant) -> bool:
        """Return whether a cell executes the code of a mutant."""
        return not self.by_file.get(mutant.file, {}).keys().isdisjoint(mutant.lines)

    def reaches(self, mutant: Mutant, source: StackFile) -> dict[str, Reach]:
        """The cells that execute the code of a mutant, the fastest first."""
        lines = self.by_file.get(mutant.file, {})
        numbers = sorted({number for line in mutant.lines for number in lines.get(line, ())})
        near = {each: max(mutant.line - each, each - mutant.last, 0) for each in source.function_around(mutant)}
        return {self.cells[each].case: self.reach(each, mutant.file, near) for each in numbers}

    def reach(self, number: int, file: str, near: Mapping[int, int]) -> Reach:
        executed = self.cells[number].files[file]
        focus = len(executed) / self.totals[number]
        return Reach(focus, {line: distance for line, distance in near.items() if line in executed})


@dataclass(frozen=True, kw_only=True)
class CellChoice:
    """``most`` cells at most for each mutant; ``locate``: prefer those in which a deviation is located."""

    most: int
    locate: bool = False

    def cells_of(
        self, mutant: Mutant, source: StackFile, coverage: Coverage, cases: Mapping[str, Case]
    ) -> tuple[str, ...]:
        return self.cells(coverage.reaches(mutant, source), cases, words_of(mutant))

    def cells(
        self, reaches: Mapping[str, Reach], cases: Mapping[str, Case], words: frozenset[str] = frozenset()
    ) -> tuple[str, ...]:
        """The cells that could notice a mutant in different ways; ``reaches`` has the fastest first.

        The first is the fastest in float32, whose tolerances are the narrowest; to locate, the fastest of those whose
        modules the reference knows. Then follow in turn the one that executes the most lines near the mutant that none
        before it does, as a changed condition shows only where it decides otherwise; the one with the most options
        that none before it has, as a fault in scaled rotary positions shows only in a cell that scales them; the one
        with the most focus; and the one whose name and purpose have most of ``words``, those of the mutant.
        """
        left = sorted(reaches, key=lambda name: (self.is_last(cases[name]), cases[name].options.torch_dtype != "fp32"))
        lines = Unseen({name: {line: 0.5**far for line, far in reaches[name].distances.items()} for name in left})
        traits = Unseen({name: dict.fromkeys(traits_of(cases[name]), 1.0) for name in left})
        likeness = likenesses(words, {name: stems(f"{name} {cases[name].why}") for name in left})
        orders: tuple[Callable[[Sequence[str]], str], ...] = (
            lines.most,
            lambda names: traits.most(names) or traits.most_again(names),
            lambda names: max(names, key=lambda name: reaches[name].focus),
            lambda names: max(names, key=lambda name: likeness[name]),
        )
        chosen: list[str] = []
        turns = cycle(orders)
        while left and len(chosen) < self.most:
            if best := next(turns)(left) if chosen else left[0]:
                left.remove(best)
                chosen.append(best)
                lines.see(best)
                traits.see(best)
        return tuple(chosen)

    def is_last(self, case: Case) -> bool:
        """Return whether a case is chosen only where no other is."""
        return self.locate and not location.is_recordable(case)


@dataclass(frozen=True)
class Unseen:
    """Prefers the cells with the most of what none seen before has; ``weights`` is what each has, with its weight."""

    weights: Mapping[str, Mapping[Any, float]]
    seen: set[Any] = field(default_factory=set)

    def most(self, names: Sequence[str]) -> str:
        """The first of the cells with the most; empty if none has anything that was not seen."""
        best = max(names, key=self.unseen)
        return best if self.unseen(best) else ""

    def most_again(self, names: Sequence[str]) -> str:
        """The same after all was seen, from the start."""
        self.seen.clear()
        return self.most(names)

    def unseen(self, name: str) -> float:
        return sum(weight for each, weight in self.weights[name].items() if each not in self.seen)

    def see(self, name: str) -> None:
        self.seen.update(self.weights[name])


def words_of(mutant: Mutant) -> frozenset[str]:
    """The words of the lines that a mutant changes, of their function, and of its file."""
    return stems(f"{mutant.file} {mutant.where} {mutant.before} {mutant.after}")


@cache  # the words of a case count for each mutant that it executes
def stems(text: str) -> frozenset[str]:
    return frozenset(each.lower().removesuffix("s")[:STEM] for each in WORD.findall(text) if len(each) > 1)


def likenesses(words: frozenset[str], others: Mapping[str, frozenset[str]]) -> dict[str, float]:
    """How many of these words each of the others has; a word that few of them have counts more."""
    counts = Counter(each for found in others.values() for each in found)
    weights = {each: math.log(len(others) / count) for each, count in counts.items() if each in words}
    return {name: sum(weights.get(each, 0.0) for each in found) for name, found in others.items()}


def traits_of(case: Case) -> frozenset[object]:
    """What sets a case apart: its options, each kind of job with its method and strategy, and the module of a call."""
    options = case.options
    if options.call:
        return frozenset({CALLS[options.call].body.__module__})
    pairs = ((options.flow, each) for each in (options.method, options.strategy, options.front_end))
    return frozenset({*options.stated.items(), *pairs})
