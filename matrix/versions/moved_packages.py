"""The packages that differ between two environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPackage:
    """A package whose version differs between two environments; a version is empty if one lacks the package."""

    name: str
    old: str
    new: str

    @property
    def is_of_stack(self) -> bool:
        return self.name in PACKAGES

    def __str__(self) -> str:
        if not self.old:
            return f"{self.name} {self.new} added"
        return f"{self.name} {self.old} -> {self.new}" if self.new else f"{self.name} {self.old} removed"


def moved_packages(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[MovedPackage, ...]:
    """The packages that moved, were added or removed: the six of the stack first, then the others by name."""
    names = sorted({*old, *new}, key=lambda name: (position(name), name))
    return tuple(
        MovedPackage(name=name, old=old.get(name, ""), new=new.get(name, ""))
        for name in names
        if old.get(name) != new.get(name)
    )


def position(name: str) -> int:
    return PACKAGES.index(name) if name in PACKAGES else len(PACKAGES)
