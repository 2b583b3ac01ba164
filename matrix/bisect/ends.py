"""Runs the good and the bad end of a bisection until the difference between them is clear, or is refused."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Verdict
from matrix.bisect.confidence import END_RUNS, FLAKY_RUNS, Ends, FailureRate
from matrix.bisect.failure import gist, state_of_run
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matrix.bisect.candidate import MixedEnvironment
    from matrix.bisect.runner import CandidateRunner
    from matrix.run.outcome import Outcome

MINUTES: Final = 15.0  # of a search between ends that flake


class FlakyDifferenceError(UserError):
    """The difference between the ends, or a result on the way, does not reproduce."""


@dataclass(frozen=True, kw_only=True)
class MeasuredEnds:
    """The outcomes of both ends, their states, and the failure of the bad end if it is red in any run."""

    good: tuple[Outcome, ...]
    bad: tuple[Outcome, ...]
    failure: Outcome | None
    states: Ends

    @property
    def is_good_green(self) -> bool:
        return all(each.verdict is Verdict.PASS for each in self.good)


@dataclass(frozen=True, kw_only=True)
class EndRuns:
    """Runs both ends.

    Attributes:
        runner: runs the cell.
        good: the end at which the cell is green.
        bad: the end at which it is red.
        cause: returns the known cause of a failure; empty if it is unknown.
        minutes: how long a search may take if the bad end flakes.
        start: the moment from which the minutes count.
    """

    runner: CandidateRunner
    good: MixedEnvironment
    bad: MixedEnvironment
    cause: Callable[[Outcome], str]
    minutes: float = MINUTES
    start: float = field(default_factory=time.monotonic)

    def measured(self) -> MeasuredEnds:
        """Run each end a few times; more often if only the runs of the bad end disagree.

        Raises:
            FlakyDifferenceError: the difference does not reproduce, or its search would take too long.
            UserError: the cell is not green at the good end, or not red at the bad one.
        """
        found = self.after(END_RUNS)
        if found.states.bad_flaked and found.is_good_green:
            self.refuse_if_long(found.states.rate)
            found = self.after(FLAKY_RUNS)
            if not found.states.why_not:
                self.refuse_if_long(found.states.rate)
        self.check(found)
        return found

    def after(self, runs: int) -> MeasuredEnds:
        """Both ends after some runs, or after fewer if the good end flakes; one more of each at a time."""
        found = self.known()
        for number in range(1, runs + 1):
            self.runner.measure_ends([self.good, self.bad], number)
            found = self.known()
            if found.states.good_flaked:
                return found
            if found.states.bad_flaked:
                self.refuse_if_over(found.states.rate)
        return found

    def known(self) -> MeasuredEnds:
        good, bad = self.runner.known(self.good), self.runner.known(self.bad)
        failure = commonest_failure(bad)
        return MeasuredEnds(
            good=good,
            bad=bad,
            failure=failure,
            states=Ends(
                good=tuple(state_of_run(each, failure, self.cause) for each in good),
                bad=tuple(state_of_run(each, failure, self.cause) for each in bad),
            ),
        )

    def refuse_if_long(self, rate: FailureRate) -> None:
        """Refuse a search that would take too long, by the runs so far.

        Raises:
            FlakyDifferenceError: it would.
        """
        ran, spent = self.runner.cells_run, time.monotonic() - self.start
        runs = FLAKY_RUNS - END_RUNS + rate.runs_of_search
        seconds = spent + runs * spent / ran if ran else 0.0
        if seconds > 60.0 * self.minutes:
            raise FlakyDifferenceError(
                f"the failure flakes: {flake_words(rate)}, so that a search needs about {runs} more runs or"
                f" {seconds / 60.0:.0f} minutes; allow them with --minutes, or make the cell deterministic"
            )

    def refuse_if_over(self, rate: FailureRate) -> None:
        """Stop a search that takes too long.

        Raises:
            FlakyDifferenceError: the time is over.
        """
        if time.monotonic() - self.start > 60.0 * self.minutes:
            raise FlakyDifferenceError(
                f"the failure flakes: {flake_words(rate)}, and the search was not finished after"
                f" {self.minutes:g} minutes; its runs are kept, and the same command with more --minutes goes on"
            )

    def check(self, found: MeasuredEnds) -> None:
        problem, case = found.states.why_not, self.runner.case.id
        if not found.is_good_green and not found.states.good_flaked:
            raise UserError(
                f"{case} is not green at the good end {self.good.key} ({words(found.good)}); choose another --good"
            )
        if found.states.flaked and problem:
            raise FlakyDifferenceError(f"the difference does not reproduce: {problem}; run the cell with --repeat 10")
        if problem:
            raise UserError(
                f"{case} is not red at the bad end {self.bad.key} ({words(found.bad)}); choose another --bad"
            )


def flake_words(rate: FailureRate) -> str:
    return f"it shows in {rate.red} of {rate.runs} runs"


def commonest_failure(outcomes: Sequence[Outcome]) -> Outcome | None:
    """A red outcome with the failure that most runs have; None if no run is red."""
    red = [each for each in outcomes if each.verdict in RED]
    keys = [(each.verdict.value, gist(each.reason)) for each in red]
    return max(zip(red, keys, strict=True), key=lambda pair: keys.count(pair[1]))[0] if red else None


def words(outcomes: Sequence[Outcome]) -> str:
    """The verdicts of some runs, and the reason of one that is not green."""
    verdicts = ", ".join(each.verdict.value for each in outcomes)
    reason = next((each.reason for each in outcomes if each.reason and each.verdict is not Verdict.PASS), "")
    return f"{verdicts}: {reason[:120]}" if reason else verdicts
