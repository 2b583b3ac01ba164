"""Computes how often a candidate must run, from how often the failure shows at the bad end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matrix.bisect.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE: Final = 0.99
END_RUNS: Final = 3  # runs of each end, if they agree: a cell that is red by a coin's flip passes 1 time in 64
FLAKY_RUNS: Final = 10  # runs of each end, if those of the bad end disagree
MOST_REPEATS: Final = 20  # more would make a search endless


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The states of the runs of both ends."""

    good: tuple[State, ...]
    bad: tuple[State, ...]

    @property
    def flaked(self) -> bool:
        return self.good_flaked or len({*self.bad}) > 1

    @property
    def good_flaked(self) -> bool:
        return len({*self.good}) > 1

    @property
    def red_rate(self) -> float:
        """The share of runs of the bad end that show the failure."""
        return self.bad.count(State.RED) / len(self.bad) if self.bad else 0.0

    @property
    def flake_rate(self) -> float:
        """The share of red runs at the bad end that do not show the failure."""
        return 1.0 - self.red_rate

    @property
    def repeats(self) -> int:
        """The runs without the failure that make a candidate green."""
        return repeats_for(self.red_rate)

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
        if self.repeats > MOST_REPEATS:
            return f"the bad end is red in only {share(self.bad, State.RED)} runs"
        return ""


def share(states: Sequence[State], which: State) -> str:
    return f"{states.count(which)} of {len(states)}"


def repeats_for(red_rate: float, confidence: float = CONFIDENCE) -> int:
    """The number of runs of which at least one is red, with this confidence, if runs are red at this rate."""
    if red_rate >= 1.0:
        return 1
    if red_rate <= 0.0:
        return MOST_REPEATS + 1
    return math.ceil(math.log(1.0 - confidence) / math.log(1.0 - red_rate))


def missed_red(red_rate: float, repeats: int) -> float:
    """The probability that none of some runs of a red candidate is red."""
    return float((1.0 - red_rate) ** repeats)


def highest_flake_rate(runs: int, confidence: float = 0.95) -> float:
    """The highest flake rate that runs without a flake leave possible, e.g. 0.26 for 10 runs."""
    return 1.0 - (1.0 - confidence) ** (1.0 / runs) if runs else 1.0
