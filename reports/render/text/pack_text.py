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
    from matrix.offline.splitting import SplitPack


def table(result: PackResult) -> Table:
    """Return a table of the wheels, the largest first, with the sets that need them."""
    rows = Table("MB", "wheel", "version", "for", box=None)
    for path, names in sorted(users(result).items(), key=lambda each: -each[0].stat().st_size):
        name, version, _, _ = parse_wheel_filename(path.name)
        rows.add_row(f"{megabytes(path.stat().st_size):.1f}", name, str(version), ", ".join(names))
    return rows


def users(result: PackResult) -> dict[Path, list[str]]:
    by_wheel: defaultdict[Path, list[str]] = defaultdict(list)
    for part in (*result.sets, *result.others):
        for path in part.files:
            by_wheel[path].append(part.name)
    return by_wheel


def lines(result: PackResult, split: SplitPack | None = None) -> Iterator[str]:
    for part in (*result.sets, *result.others):
        yield part_words(part)
    yield (
        f"{result.folder}: {counted(len(result.files), 'wheel')}, {megabytes(result.size):.1f} MB, each counted once;"
        f" {result.fetched} downloaded now"
    )
    yield from result.notes
    if split is not None:
        yield f"{split.folder}: {counted(len(split.parts), 'part')}, {megabytes(split.size):.1f} MB"
        yield f"on the target: python3 {split.folder.name}/unpack.py FOLDER run --device cuda"


def part_words(part: Part) -> str:
    without = f", without {', '.join(part.left_out)}" if part.left_out else ""
    return f"{part.name}: {counted(len(part.files), 'wheel')}, {megabytes(part.size):.1f} MB{without}"


def document(result: PackResult, split: SplitPack | None = None) -> dict[str, Any]:
    parts = {} if split is None else {"parts": {"folder": str(split.folder), "files": [p.name for p in split.parts]}}
    return parts | {
        "folder": str(result.folder),
        "sets": [part_document(part) for part in result.sets],
        "others": [part_document(part) for part in result.others],
        "wheels": len(result.files),
        "megabytes": megabytes(result.size),
        "fetched": result.fetched,
        "notes": list(result.notes),
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
