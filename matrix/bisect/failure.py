"""Decides whether two cells fail in the same way, so that another failure does not mislead a search."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Verdict
from matrix.bisect.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matrix.run.outcome import Outcome

# Parts of a message that differ between two runs or two versions: quoted names, paths, numbers.
VARIABLE: Final = re.compile(r"<[a-z]+>/\S+|(?:/[\w.+-]+){2,}|'[^']*'|\"[^\"]*\"|`[^`]*`|0x[0-9a-f]+|\d[\d.e+-]*")


def no_cause(_: Outcome) -> str:
    """No known cause."""
    return ""


def same_failure(one: Outcome, other: Outcome, cause: Callable[[Outcome], str]) -> bool:
    """Return whether two red cells have the same verdict, and the same known cause, error or failed check.

    ``cause`` returns the known cause of a failure; empty if it is unknown.
    """
    if one.verdict is not other.verdict or one.verdict not in RED:
        return False
    known = cause(one)
    if known and known == cause(other):
        return True
    if one.error is not None or other.error is not None:
        return one.error is not None and other.error is not None and error_gist(one) == error_gist(other)
    if one.checks and other.checks:
        return bool(failed_checks(one) & failed_checks(other))
    return gist(one.reason) == gist(other.reason)


def error_gist(outcome: Outcome) -> tuple[str, str]:
    error = outcome.error
    return ("", "") if error is None else (error.type, gist(error.message.strip().split("\n", 1)[0]))


def failed_checks(outcome: Outcome) -> frozenset[str]:
    return frozenset(check.name for check in outcome.checks if not check.ok)


def gist(text: str) -> str:
    """A message without the parts that differ from run to run."""
    return " ".join(VARIABLE.sub("", text).split())


def state_of(outcomes: Iterable[Outcome], at_bad_end: Outcome | None, cause: Callable[[Outcome], str]) -> State:
    """The state of a candidate by all of its runs: red if any run shows the failure of the bad end.

    Without a bad end, any red is the failure.
    """
    states = [state_of_run(each, at_bad_end, cause) for each in outcomes]
    if State.RED in states:
        return State.RED
    return State.UNTESTABLE if State.UNTESTABLE in states or not states else State.GREEN


def state_of_run(outcome: Outcome, at_bad_end: Outcome | None, cause: Callable[[Outcome], str]) -> State:
    if outcome.verdict is Verdict.PASS:
        return State.GREEN
    if outcome.verdict in RED and (at_bad_end is None or same_failure(outcome, at_bad_end, cause)):
        return State.RED
    return State.UNTESTABLE
