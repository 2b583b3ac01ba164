"""The vocabulary of outcomes: verdicts, phases and checks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

Scalar = bool | int | float | str


class LackingError(Exception):
    """The stack under test lacks a feature or misbehaves: a finding, never an error of the harness."""


class UnknownModelError(Exception):
    """The reference does not implement this model or this field of its configuration, so nothing judges the cell."""


class Verdict(str, Enum):
    """The result of a cell. It has no truth value: a skip or a loss must never count as green by accident."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    WRONG = "wrong"  # it ran, but a check failed
    FAIL = "fail"  # the stack under test raised
    HANG = "hang"  # a rank stopped making progress
    CRASH = "crash"  # a rank was ended by a signal, by memory, or vanished
    BLOCKED = "blocked"  # the set cannot be resolved or installed
    SKIP = "skip"  # this machine or version cannot run it, or the reference does not know its model
    LOST = "lost"  # the harness's or the machine's fault: rerun, never painted red

    def __bool__(self) -> NoReturn:
        raise TypeError("a Verdict has no truth value: compare it by name")


RED = frozenset({Verdict.WRONG, Verdict.FAIL, Verdict.HANG, Verdict.CRASH})


PROBING = "probing"  # the fact that a probe's rank reports just before the probe


class Phase(str, Enum):
    """The phase of a cell in which something happened, in order."""

    RESOLVE = "resolve"
    INSTALL = "install"
    IMPORT = "import"
    LOAD = "load"
    ADAPT = "adapt"
    WRAP = "wrap"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    SAVE = "save"
    RELOAD = "reload"
    RESUME = "resume"
    MERGE = "merge"
    INFER = "infer"


@dataclass(frozen=True)
class Check:
    """One measurement against its bound, e.g. ``gradient 0.003 <= 0.06``."""

    name: str
    value: Scalar
    op: str
    bound: Scalar
    ok: bool

    def __str__(self) -> str:
        return f"{self.name} {shown(self.value)} {self.op} {shown(self.bound)}"


def shown(value: Scalar) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def at_most(name: str, value: float, bound: float) -> Check:
    """Green when ``value <= bound``; NaN is never green."""
    return Check(name, float(value), "<=", float(bound), ok=bool(value <= bound))


def at_least(name: str, value: float, bound: float) -> Check:
    """Green when ``value >= bound``; NaN is never green."""
    return Check(name, float(value), ">=", float(bound), ok=bool(value >= bound))


def equal(name: str, value: Scalar, bound: Scalar) -> Check:
    return Check(name, value, "==", bound, ok=value == bound)


def missed(checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if not check.ok]
