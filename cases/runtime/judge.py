"""From what a supervisor saw of the ranks to a verdict. Pure: no process is touched here."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.runtime import failures
from cases.space.verdict import Check, Phase, Verdict, missed

if TYPE_CHECKING:
    from collections.abc import Sequence


TOGETHER_S = 1.0  # a rank's error and another's death within this time have one cause
LONGEST_REASON = 500  # characters of an error's first line; the whole message stays in the error


@dataclass
class RankEnd:
    """What is known of one rank when it has ended. Times are seconds since the cell started.

    ``begun`` is when its act began; ``exit_code`` is negative for a signal, as in ``subprocess``; ``ended_by_us`` when
    the supervisor ended it.
    """

    number: int
    begun: float = 0.0
    phase: Phase | None = None
    checks: list[Check] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)  # of the case code, that the rank imported
    error: dict[str, Any] | None = None
    error_at: float = float("inf")
    done: bool = False
    exit_code: int | None = None
    exit_at: float = float("inf")
    ended_by_us: bool = False
    last_heard: float = 0.0
    waiting_in: str = ""
    last_words: str = ""  # of the log of a rank that vanished, if they tell why
    starved: bool = False  # while it was killed, the kernel killed for want of memory


@dataclass(frozen=True)
class Judgement:
    """``failure`` names the kind of a failure that has one (``cases.failures``)."""

    verdict: Verdict
    reason: str = ""
    phase: Phase | None = None
    checks: tuple[Check, ...] = ()
    error: dict[str, Any] | None = None
    failure: str = ""


def judge(ranks: Sequence[RankEnd], *, stopped: str = "", why: str = "") -> Judgement:
    """The verdict on a cell.

    Args:
        ranks: every rank of the cell, ended.
        stopped: what made the supervisor end the cell, if it did: ``hang``, ``memory`` or ``client``.
        why: the sentence that belongs to ``stopped``.
    """
    to_blame = [rank for rank in ranks if not (rank.error is not None and failures.follows(rank.error))]
    if not any(rank.error is not None or vanished(rank) for rank in to_blame):
        to_blame = list(ranks)  # who is gone was not seen to go
    first_error = min(to_blame, key=lambda rank: rank.error_at)
    first_death = min((rank for rank in to_blame if vanished(rank)), key=lambda rank: rank.exit_at, default=None)
    if first_error.error is not None and not explains(first_death, first_error):
        return raised(first_error)
    if first_death is not None:
        return died(first_death)
    if stopped:
        return interrupted(ranks, stopped, why)
    return weighed(ranks)


def explains(death: RankEnd | None, error: RankEnd) -> bool:
    """Whether a rank's death came first, so that another rank's error (a closed connection) only follows from it.

    Its error may be heard before the death is seen. A SIGABRT is no such death: watchdogs raise it after an error.
    """
    if death is None:
        return False
    slack_s = 0.0 if death.exit_code == -signal.SIGABRT else TOGETHER_S
    return death.exit_at <= error.error_at + slack_s


def vanished(rank: RankEnd) -> bool:
    """It ended by itself, without saying that it was done and without an error."""
    return not rank.done and not rank.ended_by_us and rank.error is None and rank.exit_code is not None


def raised(rank: RankEnd) -> Judgement:
    error = {**(rank.error or {}), "rank": rank.number}
    ours = bool(error.pop("ours", False))
    first_line = next(iter(str(error["message"]).strip().splitlines()), "")[:LONGEST_REASON]
    reason = f"{error['type']}: {first_line}".rstrip(": ")
    if ours:
        said = first_line if error["type"] == "CompanionError" else f"the harness's own code raised {reason}"
        return Judgement(Verdict.LOST, said, rank.phase, error=error)
    kind = failures.of_error(error)
    if kind is None:
        return Judgement(Verdict.FAIL, reason, rank.phase, error=error)
    return Judgement(kind.verdict, f"{kind.name}: {reason}", rank.phase, error=error, failure=kind.name)


def died(rank: RankEnd) -> Judgement:
    """Of a rank that vanished: how, and why if that is known."""
    kind = failures.kind(rank.last_words)
    code = rank.exit_code or 0
    name = failures.SIGNAL if code < 0 else failures.SILENT_EXIT
    if kind is not None:
        name, how = kind.name, f"{kind.name}: {death(rank)}, and last said: {rank.last_words}"
    elif rank.starved:
        name = failures.HOST_MEMORY
        how = f"{name}: {death(rank)} as the kernel ended processes for want of memory"
    else:
        how = death(rank)
    return Judgement(Verdict.CRASH, how, rank.phase, failure=name)


def death(rank: RankEnd) -> str:
    code = rank.exit_code or 0
    if code < 0:
        return f"rank {rank.number} was ended by {signal.Signals(-code).name}"
    return f"rank {rank.number} ended without a report, exit code {code}"


def interrupted(ranks: Sequence[RankEnd], stopped: str, why: str) -> Judgement:
    unfinished = [rank for rank in ranks if not rank.done]
    phase = unfinished[0].phase if unfinished else None
    verdict = {"hang": Verdict.HANG, "memory": Verdict.CRASH, "client": Verdict.LOST}[stopped]
    waiting = "; ".join(f"rank {rank.number} in {rank.waiting_in}" for rank in unfinished if rank.waiting_in)
    failure = failures.HOST_MEMORY if stopped == "memory" else ""
    return Judgement(verdict, f"{why}: {waiting}" if waiting else why, phase, failure=failure)


def weighed(ranks: Sequence[RankEnd]) -> Judgement:
    """Every rank is done: the worst measurement of any rank counts, for each check."""
    worst: dict[str, Check] = {}
    for check in (check for rank in ranks for check in rank.checks):
        held = worst.setdefault(check.name, check)
        if (check.ok, -size(check)) < (held.ok, -size(held)):
            worst[check.name] = check
    checks = tuple(worst.values())
    red = missed(checks)
    if red:
        return Judgement(Verdict.WRONG, "; ".join(map(str, red)), checks=checks)
    if not checks:
        return Judgement(Verdict.LOST, "the case made no checks, so nothing was shown")
    return Judgement(Verdict.PASS, checks=checks)


def size(check: Check) -> float:
    """How bad a measurement is, to choose between two of the same check."""
    if isinstance(check.value, str):
        return 0.0
    return float(check.value) if check.op == "<=" else -float(check.value)
