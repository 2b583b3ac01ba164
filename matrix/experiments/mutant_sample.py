"""Chooses which mutants to run: drawn, named, or written by hand."""

from __future__ import annotations

import fnmatch
import json
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from matrix.errors import UserError
from matrix.experiments import line_shares, mutable_code
from matrix.experiments.cell_choice import CellChoice, Coverage
from matrix.experiments.mutants import Mutant, StackFile, generate, is_valid
from matrix.experiments.mutation_targets import PACKAGES, PATTERN

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
            drawn.append((mutant, choice.cells_of(mutant, sources[mutant.file], coverage, cases)))
    lines = line_shares.shares(sources.values(), coverage.by_file)
    return Sample(mutants=tuple(drawn), files=tuple(counts), lines=tuple(lines))


def again(
    wanted: Collection[str], cells: Sequence[TracedCell], cases: Mapping[str, Case], *, choice: CellChoice
) -> Sample:
    """The mutants with these ids. One whose code the cells no longer execute has no cell."""
    coverage = Coverage.of(cells)
    sources = stack_sources(cells, "")
    mutants = ((mutant, source) for source in sources for mutant in generate(source))
    found = {mutant.id: (mutant, source) for mutant, source in mutants if mutant.id in wanted}
    return Sample(
        lines=tuple(line_shares.shares(sources, coverage.by_file)),
        mutants=tuple((each, choice.cells_of(each, source, coverage, cases)) for each, source in found.values()),
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
        parsed = parsed_entry(entry, root)
        if isinstance(parsed, str):
            rejected[name] = parsed
        else:
            found.append((parsed[0], choice.cells_of(*parsed, coverage, cases)))
    return Sample(mutants=tuple(found), rejected=rejected)


def entries(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--mutants {path}: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) and set(KEYS) <= each.keys() for each in found):
        raise UserError(f"--mutants {path}: expected a JSON list of objects with {', '.join(KEYS)}")
    return found


def parsed_entry(entry: Mapping[str, Any], root: Path) -> tuple[Mutant, StackFile] | str:
    """The mutant of an entry with its file, or the reason why it fits no function of this version."""
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
    return (mutant, source) if is_valid(mutant, source) else "the edit does not compile, or changes no code"
