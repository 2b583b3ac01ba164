"""Compares version sets: their differences, their distance, and the packages to move first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement

from cases.space.options import SHARDED
from matrix.search.fixes import Change

if TYPE_CHECKING:
    from cases.space.options import Options
    from matrix.versions.sets import VersionSet

ORDER: Final = ("peft", "transformers", "accelerate", "torch", "bitsandbytes", "trl")


def moves(start: VersionSet, to: VersionSet) -> tuple[Change, ...]:
    """The differences between two sets. A version is empty if its set does not pin the package."""
    old, new = pinned(start), pinned(to)
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    return tuple(Change(name=name, old=old.get(name, ""), new=new.get(name, "")) for name in names)


def pinned(version_set: VersionSet) -> dict[str, str]:
    """The versions of Python, the six packages, and other packages that the set pins exactly."""
    extras = [Requirement(line) for line in version_set.extras]
    exact = {each.name: str(each.specifier).removeprefix("==") for each in extras if str(each.specifier)[:2] == "=="}
    return {"python": version_set.python, **version_set.pins, **exact}


def distance(start: VersionSet, to: VersionSet) -> tuple[int, bool, int, bool]:
    """A sort key: fewer moves first, then moves without torch, then sets near in time, then newer sets."""
    moved = {each.name for each in moves(start, to)}
    days = (to.as_of - start.as_of).days
    return len(moved), "torch" in moved, abs(days), days < 0


def likely(options: Options) -> list[str]:
    """The packages in the order of their moves: first those that implement an option of the case."""
    is_used = {
        "trl": options.front_end == "sft",
        "bitsandbytes": options.quant != "none",
        "torch": options.strategy in SHARDED,
        "accelerate": options.front_end == "accelerate",
    }
    return sorted(ORDER, key=lambda name: not is_used.get(name, False))
