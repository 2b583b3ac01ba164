"""The ends of a bisection run more often only if that can change the answer."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Verdict
from matrix.bisect.candidate import MixedEnvironment
from matrix.bisect.confidence import END_RUNS, FLAKY_RUNS
from matrix.bisect.ends import EndRuns, FlakyDifferenceError
from matrix.bisect.failure import no_cause
from matrix.errors import UserError
from matrix.run.outcome import ErrorRecord, Outcome
from matrix.versions.locks import Lock
from matrix.versions.sets import PACKAGES, VersionSet

if TYPE_CHECKING:
    from collections.abc import Sequence

GOOD, BAD = "2025-12", "2026-03"
MOST = 12  # runs that a fake end has


def end(key: str) -> MixedEnvironment:
    pins = dict.fromkeys(PACKAGES, "1.0")
    version_set = VersionSet(key=key, python="3.11", as_of=date(2025, 12, 15), why="test", pins=pins)
    lock = Lock(version_set=version_set, text="")
    return MixedEnvironment(label=key, version_set=version_set, lock=lock)


@dataclass
class FakeRunner:
    """Gives the verdicts of a text for each set, one for each run: ``+`` green, ``-`` red, ``x`` red otherwise."""

    verdicts: dict[str, str]
    runs: Counter[str] = field(default_factory=Counter)
    case: Any = field(default_factory=lambda: SimpleNamespace(id="a"))

    @property
    def cells_run(self) -> int:
        return self.runs.total()

    def measure_ends(self, candidates: Sequence[MixedEnvironment], runs: int) -> None:
        self.runs.update({each.key: runs - self.runs[each.key] for each in candidates})

    def known(self, candidate: MixedEnvironment) -> tuple[Outcome, ...]:
        return tuple(map(outcome, self.verdicts[candidate.key][: self.runs[candidate.key]]))


def outcome(sign: str) -> Outcome:
    result: dict[str, Any] = {"verdict": Verdict.PASS}
    if sign != "+":
        result = {"verdict": Verdict.FAIL, "error": ErrorRecord(type="ValueError", message=sign)}
    place: dict[str, Any] = {"set": "s", "case": "a", "group": "", "why": "", "options": {}, "seconds": 0.0}
    return Outcome(**place, **result, started=datetime.now(UTC))


def ran(good: str, bad: str, *, spent_s: float = 0.0) -> tuple[int, int, str]:
    """Run the ends; return how often each ran, and the error."""
    runner: Any = FakeRunner({GOOD: good * MOST, BAD: bad * MOST})
    start = time.monotonic() - spent_s
    runs = EndRuns(runner=runner, good=end(GOOD), bad=end(BAD), cause=no_cause, minutes=15.0, start=start)
    error = ""
    try:
        runs.measured()
    except UserError as caught:
        error = f"{type(caught).__name__}: {caught}"
    return runner.runs[GOOD], runner.runs[BAD], error


def test_ends_that_agree_run_a_few_times() -> None:
    assert ran("+", "-") == (END_RUNS, END_RUNS, "")


def test_ends_of_which_the_bad_one_flakes_run_more_often() -> None:
    assert ran("+", "-+") == (FLAKY_RUNS, FLAKY_RUNS, "")


@pytest.mark.parametrize(
    ("good", "bad", "runs", "why"),
    [
        ("+-", "-", 2, "the good end shows the failure of the bad end in 1 of 2 runs"),
        ("++++-", "-+", 5, "the good end shows the failure of the bad end in 1 of 5 runs"),
        ("+x", "-+", 2, "the good end is green in only 1 of 2 runs"),
    ],
)
def test_a_good_end_that_flakes_is_refused_at_its_first_flake(good: str, bad: str, runs: int, why: str) -> None:
    ran_good, _, error = ran(good, bad)
    assert ran_good == runs
    assert error.startswith(f"{FlakyDifferenceError.__name__}: the difference does not reproduce: {why}")


def test_a_good_end_that_is_always_red_is_bad_input() -> None:
    assert "a is not green at the good end 2025-12 (fail, fail, fail" in ran("-", "-")[2]


@pytest.mark.parametrize("spent_s", [0.0, 120.0])
def test_a_good_end_that_is_always_red_otherwise_is_bad_input_though_the_bad_end_flakes(spent_s: float) -> None:
    good, bad, error = ran("x", "-x-", spent_s=spent_s)
    assert (good, bad) == (END_RUNS, END_RUNS)
    assert "a is not green at the good end 2025-12 (fail, fail, fail" in error


def test_a_bad_end_that_is_rarely_red_is_refused() -> None:
    assert "the bad end is red in only 1 of 10 runs" in ran("+", "+-++++++++")[2]


def test_a_flaky_search_that_takes_too_long_is_refused_after_few_runs() -> None:
    good, bad, error = ran("+", "+--", spent_s=120.0)  # six runs in two minutes
    assert (good, bad) == (END_RUNS, END_RUNS)
    assert "the failure flakes: it shows in 2 of 3 runs, so that a search needs about" in error
    assert ran("+", "-", spent_s=120.0)[2] == ""  # one run decides each step


def test_a_flaky_search_ends_when_its_time_is_over() -> None:
    good, bad, error = ran("+", "-+", spent_s=901.0)
    assert (good, bad) == (2, 2)
    assert "the search was not finished after 15 minutes; its runs are kept" in error
