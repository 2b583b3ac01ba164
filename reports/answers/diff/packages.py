"""Packages that moved between two locks, and those among them that a failure involves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name

from matrix.versions.sets import PACKAGES
from reports.answers.diagnosis.frames import frames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.signatures import Signature

WORD: Final = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockMove:
    """A package with another version on the new side; a version is empty if that side lacks the package."""

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


def moves(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[LockMove, ...]:
    """The packages that moved, were added or removed: the six of the stack first, then the others by name."""
    names = sorted({*old, *new}, key=lambda name: (position(name), name))
    return tuple(
        LockMove(name=name, old=old.get(name, ""), new=new.get(name, ""))
        for name in names
        if old.get(name) != new.get(name)
    )


def position(name: str) -> int:
    return PACKAGES.index(name) if name in PACKAGES else len(PACKAGES)


def suspects(outcome: Outcome, signature: Signature | None, moved: tuple[LockMove, ...]) -> tuple[str, ...]:
    """The moved packages that the failure involves.

    First those whose versions the signature bounds, then those that its cause names, then those of the traceback, from
    the frame that raised outwards.
    """
    names = {each.name for each in moved}
    bounded = signature.specifiers if signature is not None else {}
    words = WORD.findall(signature.cause.lower()) if signature is not None else ()
    named = (each for each in words if each in PACKAGES)
    trace = outcome.error.traceback if outcome.error is not None else ""
    raised = [str(canonicalize_name(each.package)) for each in reversed([*frames(trace.splitlines())]) if each.package]
    return tuple(name for name in dict.fromkeys((*bounded, *named, *raised)) if name in names)
