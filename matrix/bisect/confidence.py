"""Computes how often a candidate must run, from how often the failure shows at the bad end.

The bad end flakes if some of its runs do not show the failure. Each candidate is then tested by a sequential
probability ratio test (Wald, 1945) of "shows the failure as often as the bad end" against "never shows it": one run
with the failure decides for red, which is never wrong for a candidate that never shows it, and enough runs without it
decide for green. A step of the search is green after a few runs, with an error of at most 10 %, because a wrong step
only leads to more steps. What the answer calls green is tested until the error of each is at most 1 % divided by the
red candidates of a search, because each of them could have been green by chance.

The rate is not known exactly. The probability that a red candidate runs without the failure is that of a beta-binomial
distribution: the mean over the rates that the runs of all red candidates leave possible, from a uniform prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matrix.bisect.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS: Final = 12  # candidates of a search between two dated sets, about: log2 of 60 packages, then of 40 releases
ERROR: Final = 0.01 / (STEPS / 2)  # probability that a candidate that the answer calls green is red; half are red
STEP_ERROR: Final = 0.1  # likewise of a step on the way
END_RUNS: Final = 3  # runs of each end, if they agree: a cell that is red by a coin's flip passes 1 time in 64
FLAKY_RUNS: Final = 10  # runs of the bad end, if they disagree
LEAST_RED: Final = 3  # red runs of the bad end among these; with fewer, a search would take hundreds of runs
MOST_REPEATS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """How often the failure shows where it is: in ``red`` of some ``runs`` of red candidates."""

    red: int
    runs: int

    @property
    def flakes(self) -> bool:
        return self.red < self.runs

    @property
    def step_repeats(self) -> int:
        """The runs without the failure after which a step of the search counts as green."""
        return self.repeats_for(STEP_ERROR)

    @property
    def repeats(self) -> int:
        """The runs without the failure that make a candidate green in the answer."""
        return self.repeats_for(ERROR)

    @property
    def runs_of_search(self) -> int:
        """About how often a search runs the cell after the ends: half of its steps are red, the others green."""
        red_runs = self.runs / self.red if self.red else float(MOST_REPEATS)
        steps = STEPS / 2 * (self.step_repeats + min(red_runs, self.step_repeats))
        return round(steps) + 2 * self.repeats

    def repeats_for(self, error: float) -> int:
        """The number of runs without the failure after which a candidate is red with at most this probability.

        One is enough if the failure shows in every run.
        """
        numbers = range(1, MOST_REPEATS + 1)
        return next((each for each in numbers if self.missed_red(each) <= error), MOST_REPEATS)

    def missed_red(self, repeats: int) -> float:
        """The probability that none of some runs of a red candidate is red."""
        if not self.flakes:
            return 0.0
        missed = 1.0
        for number in range(repeats):
            missed *= (self.runs - self.red + 1 + number) / (self.runs + 2 + number)
        return missed


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The states of the runs of both ends."""

    good: tuple[State, ...]
    bad: tuple[State, ...]

    @property
    def bad_flaked(self) -> bool:
        return len({*self.bad}) > 1

    @property
    def good_flaked(self) -> bool:
        return len({*self.good}) > 1

    @property
    def flaked(self) -> bool:
        return self.good_flaked or self.bad_flaked

    @property
    def rate(self) -> FailureRate:
        return FailureRate(red=self.bad.count(State.RED), runs=len(self.bad))

    @property
    def why_not(self) -> str:
        """Why the difference is no basis of a search; empty if it is one."""
        if State.RED in self.good:
            return f"the good end shows the failure of the bad end in {share(self.good, State.RED)} runs"
        if State.RED not in self.bad:
            return f"the bad end is red in none of {len(self.bad)} runs"
        if State.GREEN not in self.good:
            return f"the good end is green in none of {len(self.good)} runs"
        if self.good_flaked:
            return f"the good end is green in only {share(self.good, State.GREEN)} runs"
        if self.bad_flaked and self.rate.red < LEAST_RED and self.rate.runs >= FLAKY_RUNS:
            return f"the bad end is red in only {share(self.bad, State.RED)} runs"
        return ""


def share(states: Sequence[State], which: State) -> str:
    return f"{states.count(which)} of {len(states)}"


def highest_flake_rate(runs: int, confidence: float = 0.95) -> float:
    """The highest flake rate that runs without a flake leave possible, e.g. 0.26 for 10 runs."""
    return 1.0 - (1.0 - confidence) ** (1.0 / runs) if runs else 1.0
