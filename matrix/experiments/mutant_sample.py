"""Chooses which mutants to run, and the cells that could notice each."""

from __future__ import annotations

import fnmatch
import json
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cases.api import CALLS
from matrix.errors import UserError
from matrix.experiments import line_shares, mutable_code
from matrix.experiments.mutants import Mutant, StackFile, generate, is_valid
from matrix.experiments.mutation_targets import PACKAGES, PATTERN
from matrix.run import location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cases.space.case import Case
    from matrix.experiments.executed_lines import TracedCell
    from matrix.experiments.line_shares import LineShare

HAND_WRITTEN: Final = "hand-written"
KEYS: Final = ("file", "function", "old", "new")


@dataclass(frozen=True, kw_only=True)
class FileCounts:
    """The mutants of a file: how many there are, and how many of them a green cell executes.

    ``import_time`` counts the statements that cannot be mutated, as they run at import.
    """

    file: str
    generated: int
    covered: int
    import_time: int

    @property
    def package(self) -> str:
        return self.file.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The mutants to run, each with its cells; ``rejected`` are hand-written ones that fit no file, with the reason."""

    mutants: tuple[tuple[Mutant, tuple[str, ...]], ...]
    files: tuple[FileCounts, ...] = ()
    lines: tuple[LineShare, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CellChoice:
    """``most`` cells at most for each mutant; ``locate``: prefer those in which a deviation is located."""

    most: int
    locate: bool = False

    def last(self, case: Case) -> bool:
        """Return whether a case is chosen only where no other is."""
        return self.locate and not location.is_recordable(case)


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

    def cells_of(self, mutant: Mutant) -> dict[str, float]:
        """The cells that execute the code of a mutant, the fastest first, each with its focus.

        The focus is the share of the mutant's file in the lines that the cell executes: a job that does little else
        than what the file does is likely to look at it.
        """
        lines = self.by_file.get(mutant.file, {})
        numbers = sorted({number for line in mutant.lines for number in lines.get(line, ())})
        return {self.cells[each].case: self.focus(each, mutant.file) for each in numbers}

    def focus(self, number: int, file: str) -> float:
        return len(self.cells[number].files[file]) / self.totals[number]


def draw(
    cells: Sequence[TracedCell],
    cases: Mapping[str, Case],
    *,
    count: int,
    seed: int,
    choice: CellChoice,
    files: str = "",
) -> Sample:
    """``count`` mutants that a green cell executes: one of each package in turn, in an order that the seed decides.

    A larger count keeps the mutants of a smaller one. ``files`` is a pattern of paths below site-packages.
    """
    coverage = Coverage.of(cells)
    counts: list[FileCounts] = []
    covered: dict[str, list[Mutant]] = defaultdict(list)
    sources = {source.file: source for source in stack_sources(cells, files)}
    for source in sources.values():
        every = list(generate(source))
        known = [mutant for mutant in every if coverage.has(mutant)]
        covered[source.file.partition("/")[0]] += known
        counts.append(
            FileCounts(
                file=source.file,
                generated=len(every),
                covered=len(known),
                import_time=mutable_code.import_time_statements(source.tree),
            )
        )
    drawn: list[tuple[Mutant, tuple[str, ...]]] = []
    for mutant in in_turn(covered, seed):
        if len(drawn) == count:
            break
        if is_valid(mutant, sources[mutant.file]):
            drawn.append((mutant, chosen_cells(coverage.cells_of(mutant), cases, choice)))
    lines = line_shares.shares(sources.values(), coverage.by_file)
    return Sample(mutants=tuple(drawn), files=tuple(counts), lines=tuple(lines))


def again(
    wanted: Collection[str], cells: Sequence[TracedCell], cases: Mapping[str, Case], *, choice: CellChoice
) -> Sample:
    """The mutants with these ids. One whose code the cells no longer execute has no cell."""
    coverage = Coverage.of(cells)
    sources = stack_sources(cells, "")
    mutants = (mutant for source in sources for mutant in generate(source))
    found = {mutant.id: mutant for mutant in mutants if mutant.id in wanted}
    return Sample(
        lines=tuple(line_shares.shares(sources, coverage.by_file)),
        mutants=tuple((each, chosen_cells(coverage.cells_of(each), cases, choice)) for each in found.values()),
        rejected=dict.fromkeys(sorted(set(wanted) - found.keys()), "this version has no such code"),
    )


def stack_sources(cells: Sequence[TracedCell], files: str) -> list[StackFile]:
    """The files of the stack that mutants may change and that match a pattern."""
    if not cells:
        return []
    root = Path(cells[0].root)
    if not root.is_dir():
        raise UserError(f"{root} is gone: the environment was removed after its lines were measured; run it again")
    paths = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    names = (path.relative_to(root).as_posix() for path in paths)
    chosen = (name for name in names if PATTERN.fullmatch(name) and matches(name, files))
    return [StackFile(name, (root / name).read_bytes()) for name in chosen]


def matches(name: str, files: str) -> bool:
    patterns = [each for each in files.replace(",", " ").split() if each]
    return not patterns or any(name.startswith(each) or fnmatch.fnmatch(name, each) for each in patterns)


def in_turn(groups: Mapping[str, list[Mutant]], seed: int) -> Iterable[Mutant]:
    """One mutant of each package in turn."""

    def order(mutant: Mutant) -> str:
        return sha256(f"{seed} {mutant.id}".encode()).hexdigest()

    for row in zip_longest(*(sorted(groups[name], key=order) for name in sorted(groups))):
        yield from (mutant for mutant in row if mutant is not None)


def chosen_cells(focus: Mapping[str, float], cases: Mapping[str, Case], choice: CellChoice) -> tuple[str, ...]:
    """The cells that could notice a mutant in different ways; ``focus`` has the fastest first.

    The first is the fastest in float32, whose tolerances are the narrowest; to locate, the fastest of those whose
    modules the reference knows. Then follow in turn the one with the most options that none before it has, as a fault
    in scaled rotary positions shows only in a cell that scales them, and the one with the most focus.
    """
    left = sorted(focus, key=lambda name: (choice.last(cases[name]), cases[name].options.torch_dtype != "fp32"))
    traits = {name: traits_of(cases[name]) for name in left}
    chosen: list[str] = []
    seen: set[object] = set()
    while left and len(chosen) < choice.most:
        if not any(traits[name] - seen for name in left):
            seen.clear()
        if not chosen:
            best = left[0]
        elif len(chosen) % 2:
            best = max(left, key=lambda name: len(traits[name] - seen))
        else:
            best = max(left, key=lambda name: focus[name])
        left.remove(best)
        chosen.append(best)
        seen |= traits[best]
    return tuple(chosen)


def traits_of(case: Case) -> frozenset[object]:
    """What sets a case apart: its options, each kind of job with its method and strategy, and the module of a call."""
    options = case.options
    if options.call:
        return frozenset({CALLS[options.call].body.__module__})
    pairs = ((options.flow, each) for each in (options.method, options.strategy, options.front_end))
    return frozenset({*options.stated.items(), *pairs})


def hand_written(path: Path, cells: Sequence[TracedCell], cases: Mapping[str, Case], *, choice: CellChoice) -> Sample:
    """The mutants of a file: a JSON list of objects with ``file``, ``function``, ``old`` and ``new``.

    Raises:
        UserError: the file is no such list.
    """
    coverage = Coverage.of(cells)
    found: list[tuple[Mutant, tuple[str, ...]]] = []
    rejected: dict[str, str] = {}
    root = Path(cells[0].root) if cells else Path()
    for number, entry in enumerate(entries(path), start=1):
        name = str(entry.get("id", number))
        mutant = parsed_entry(entry, root)
        if isinstance(mutant, str):
            rejected[name] = mutant
        else:
            found.append((mutant, chosen_cells(coverage.cells_of(mutant), cases, choice)))
    return Sample(mutants=tuple(found), rejected=rejected)


def entries(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--mutants {path}: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) and set(KEYS) <= each.keys() for each in found):
        raise UserError(f"--mutants {path}: expected a JSON list of objects with {', '.join(KEYS)}")
    return found


def parsed_entry(entry: Mapping[str, Any], root: Path) -> Mutant | str:
    """The mutant of an entry, or the reason why it fits no function of this version."""
    path = root / str(entry["file"])
    if not path.is_file():
        return f"this version has no {entry['file']}"
    source = StackFile(str(entry["file"]), path.read_bytes())
    functions = [each for each in source.functions if each.name == entry["function"]]
    if not functions:
        return f"{entry['file']} has no function {entry['function']}"
    places = [(each, place) for each in functions for place in source.places(each.node, str(entry["old"]))]
    if len(places) != 1:
        return f"{entry['function']} has the text to replace {len(places)} times"
    function, begin = places[0]
    span = (begin, begin + len(str(entry["old"]).encode()))
    mutant = source.edited(HAND_WRITTEN, function, span, str(entry["new"]), name=str(entry.get("id", "")))
    return mutant if is_valid(mutant, source) else "the edit does not compile, or changes no code"
