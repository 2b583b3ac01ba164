"""Derives the verdict on a cell from the states of its ranks, without touching any process."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cases.runtime import failures
from cases.space.verdict import Check, Phase, UnknownModelError, Verdict, missed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cases.runtime.rank_state import RankState
    from cases.runtime.wire import ErrorReport

SAME_CAUSE_S = 1.0  # an error of one rank and the death of another within this time have the same cause
LONGEST_REASON = 500  # characters of an error's first line; the whole message stays in the error


@dataclass(frozen=True)
class CellJudgement:
    """A verdict and its reason. ``failure`` is the kind of failure, if known (see ``cases.runtime.failures``)."""

    verdict: Verdict
    reason: str = ""
    phase: Phase | None = None
    checks: tuple[Check, ...] = ()
    error: ErrorReport | None = None
    failure: str = ""


def judge(ranks: Sequence[RankState], *, stopped: str = "", why: str = "") -> CellJudgement:
    """The verdict on a cell.

    Args:
        ranks: every rank of the cell, after its end.
        stopped: why the supervisor ended the cell, if it did: ``hang``, ``overload``, ``memory`` or ``client``.
        why: a sentence that explains ``stopped``.
    """
    to_blame = [rank for rank in ranks if not (rank.error is not None and failures.is_consequence(rank.error))]
    if not any(rank.error is not None or rank.vanished for rank in to_blame):
        to_blame = list(ranks)  # no rank shows the cause, so the consequences count
    first_error = min(to_blame, key=lambda rank: rank.error_at)
    first_death = min((rank for rank in to_blame if rank.vanished), key=lambda rank: rank.exit_at, default=None)
    if first_error.error is not None and not explains(first_death, first_error):
        return judge_error(first_error)
    if first_death is not None:
        return judge_death(first_death)
    if stopped:
        return judge_interruption(ranks, stopped, why)
    return judge_checks(ranks)


def explains(death: RankState | None, error: RankState) -> bool:
    """Return whether a rank's death came first, so that another rank's error (a closed connection) is its consequence.

    The supervisor may read the error before it sees the death. A SIGABRT is no such death: watchdogs raise it after an
    error.
    """
    if death is None:
        return False
    slack_s = 0.0 if death.exit_code == -signal.SIGABRT else SAME_CAUSE_S
    return death.exit_at <= error.error_at + slack_s


def judge_error(rank: RankState) -> CellJudgement:
    """The verdict on a rank that reported an error."""
    assert rank.error is not None  # noqa: S101 - the caller chose a rank with an error
    error = replace(rank.error, rank=rank.number, is_ours=False)
    first_line = next(iter(error.message.strip().splitlines()), "")[:LONGEST_REASON]
    reason = f"{error.type}: {first_line}".rstrip(": ")
    if error.type == UnknownModelError.__name__:
        return CellJudgement(Verdict.SKIP, f"the reference cannot judge it: {first_line}")
    if rank.error.is_ours:
        shown = first_line if error.type == "CompanionError" else f"the harness's own code raised {reason}"
        return CellJudgement(Verdict.LOST, shown, rank.phase, error=error)
    kind = failures.kind_of_error(error)
    if kind is None:
        return CellJudgement(Verdict.FAIL, reason, rank.phase, error=error)
    return CellJudgement(kind.verdict, f"{kind.name}: {reason}", rank.phase, error=error, failure=kind.name)


def judge_death(rank: RankState) -> CellJudgement:
    """The verdict on a rank that vanished, with the cause if its log or the kernel shows it."""
    kind = failures.kind_of_text(rank.last_words)
    code = rank.exit_code or 0
    name = failures.SIGNAL if code < 0 else failures.SILENT_EXIT
    if kind is not None:
        name, reason = kind.name, f"{kind.name}: {death(rank)}; last output: {rank.last_words}"
    elif rank.oom_killed:
        name = failures.HOST_MEMORY
        reason = f"{name}: {death(rank)} as the kernel ended processes for lack of memory"
    else:
        reason = death(rank)
    return CellJudgement(Verdict.CRASH, reason, rank.phase, failure=name)


def death(rank: RankState) -> str:
    """A clause that describes how a rank vanished."""
    code = rank.exit_code or 0
    if code < 0:
        return f"rank {rank.number} was ended by {signal.Signals(-code).name}"
    return f"rank {rank.number} ended without a report, exit code {code}"


def judge_interruption(ranks: Sequence[RankState], stopped: str, why: str) -> CellJudgement:
    unfinished = [rank for rank in ranks if not rank.done]
    phase = unfinished[0].phase if unfinished else None
    lost = {"overload": Verdict.LOST, "client": Verdict.LOST}
    verdict = {"hang": Verdict.HANG, "memory": Verdict.CRASH, **lost}[stopped]
    waiting = "; ".join(f"rank {rank.number} in {rank.waiting_in}" for rank in unfinished if rank.waiting_in)
    failure = failures.HOST_MEMORY if stopped == "memory" else ""
    return CellJudgement(verdict, f"{why}: {waiting}" if waiting else why, phase, failure=failure)


def judge_checks(ranks: Sequence[RankState]) -> CellJudgement:
    """The verdict if every rank is done: for each check, the worst measurement of any rank counts."""
    worst: dict[str, Check] = {}
    for check in (check for rank in ranks for check in rank.checks):
        held = worst.setdefault(check.name, check)
        if (check.ok, -badness(check)) < (held.ok, -badness(held)):
            worst[check.name] = check
    checks = tuple(worst.values())
    red = missed(checks)
    if red:
        return CellJudgement(Verdict.WRONG, "; ".join(map(str, red)), checks=checks)
    if not checks:
        return CellJudgement(Verdict.LOST, "the case made no checks, so it shows nothing")
    return CellJudgement(Verdict.PASS, checks=checks)


def badness(check: Check) -> float:
    """A number that is larger for a worse measurement of the same check."""
    if isinstance(check.value, str):
        return 0.0
    return float(check.value) if check.op == "<=" else -float(check.value)
