"""Draws the contents of a pack: the size of each wheel, of each set, and in total."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from packaging.utils import parse_wheel_filename
from rich.table import Table

from cases.space.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.offline.packing import PackResult, Part


def table(made: PackResult) -> Table:
    """Return a table of the wheels, the largest first, with the sets that need them."""
    drawn = Table("MB", "wheel", "version", "for", box=None)
    for path, names in sorted(users(made).items(), key=lambda each: -each[0].stat().st_size):
        name, version, _, _ = parse_wheel_filename(path.name)
        drawn.add_row(f"{megabytes(path.stat().st_size):.1f}", name, str(version), ", ".join(names))
    return drawn


def users(made: PackResult) -> dict[Path, list[str]]:
    found: defaultdict[Path, list[str]] = defaultdict(list)
    for part in (*made.sets, *made.others):
        for path in part.files:
            found[path].append(part.name)
    return found


def lines(made: PackResult) -> Iterator[str]:
    for part in (*made.sets, *made.others):
        yield part_words(part)
    yield (
        f"{made.folder}: {counted(len(made.files), 'wheel')}, {megabytes(made.size):.1f} MB, each counted once;"
        f" {made.fetched} downloaded now"
    )
    yield from made.notes


def part_words(part: Part) -> str:
    without = f", without {', '.join(part.left_out)}" if part.left_out else ""
    return f"{part.name}: {counted(len(part.files), 'wheel')}, {megabytes(part.size):.1f} MB{without}"


def document(made: PackResult) -> dict[str, Any]:
    return {
        "folder": str(made.folder),
        "sets": [part_document(part) for part in made.sets],
        "others": [part_document(part) for part in made.others],
        "wheels": len(made.files),
        "megabytes": megabytes(made.size),
        "fetched": made.fetched,
        "notes": list(made.notes),
    }


def part_document(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "megabytes": megabytes(part.size),
        "left_out": list(part.left_out),
        "wheels": [{"file": path.name, "megabytes": megabytes(path.stat().st_size)} for path in part.files],
    }


def megabytes(size: int) -> float:
    return round(size / 1e6, 3)
