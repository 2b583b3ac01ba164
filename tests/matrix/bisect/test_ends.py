"""The ends of a bisection run more often only if that can change the answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Verdict
from matrix.bisect.candidate import MixedEnvironment
from matrix.bisect.confidence import END_RUNS, FLAKY_RUNS
from matrix.bisect.search import Bisection, End, FlakyDifferenceError
from matrix.errors import UserError
from matrix.run.outcome import ErrorRecord, Outcome
from matrix.versions.locks import Lock
from matrix.versions.sets import PACKAGES, VersionSet

if TYPE_CHECKING:
    from collections.abc import Sequence

GOOD, BAD = "2025-12", "2026-03"


def end(key: str) -> End:
    pins = dict.fromkeys(PACKAGES, "1.0")
    version_set = VersionSet(key=key, python="3.11", as_of=date(2025, 12, 15), why="test", pins=pins)
    lock = Lock(version_set=version_set, text="")
    return End(lock=lock, candidate=MixedEnvironment(label=key, version_set=version_set, lock=lock))


@dataclass
class FakeRunner:
    """Gives the verdicts of a text for each set, one for each run: ``+`` green, ``-`` red, ``x`` red otherwise."""

    verdicts: dict[str, str]
    runs: Counter[str] = field(default_factory=Counter)
    case: Any = field(default_factory=lambda: SimpleNamespace(id="a"))

    def measure_ends(self, candidates: Sequence[MixedEnvironment], runs: int) -> dict[str, tuple[Outcome, ...]]:
        self.runs.update({each.key: runs - self.runs[each.key] for each in candidates})
        return {each.key: tuple(map(outcome, self.verdicts[each.key][:runs])) for each in candidates}


def outcome(sign: str) -> Outcome:
    result: dict[str, Any] = {"verdict": Verdict.PASS}
    if sign != "+":
        result = {"verdict": Verdict.FAIL, "error": ErrorRecord(type="ValueError", message=sign)}
    place: dict[str, Any] = {"set": "s", "case": "a", "group": "", "why": "", "options": {}, "seconds": 0.0}
    return Outcome(**place, **result, started=datetime.now(UTC))


def ran(good: str, bad: str) -> tuple[int, str]:
    """Run the ends; return how often each ran, and the error."""
    runner: Any = FakeRunner({GOOD: good * FLAKY_RUNS, BAD: bad * FLAKY_RUNS})
    differences: Any = None
    search = Bisection(runner=runner, good=end(GOOD), bad=end(BAD), differences=differences, say=lambda _: None)
    error = ""
    try:
        search.run_ends()
    except UserError as caught:
        error = f"{type(caught).__name__}: {caught}"
    assert runner.runs[GOOD] == runner.runs[BAD]
    return runner.runs[GOOD], error


def test_ends_that_agree_run_a_few_times() -> None:
    assert ran("+", "-") == (END_RUNS, "")


def test_a_bad_end_that_flakes_runs_more_often() -> None:
    assert ran("+", "-+") == (FLAKY_RUNS, "")


@pytest.mark.parametrize(
    ("good", "bad", "why"),
    [
        ("+-", "-", "the good end shows the failure of the bad end in 1 of 3 runs"),
        ("+x", "-+", "the good end is green in only 2 of 3 runs"),
    ],
)
def test_a_good_end_that_flakes_is_refused_at_once(good: str, bad: str, why: str) -> None:
    runs, error = ran(good, bad)
    assert runs == END_RUNS
    assert error.startswith(f"{FlakyDifferenceError.__name__}: the difference does not reproduce: {why}")


def test_a_good_end_that_is_always_red_is_bad_input() -> None:
    assert "a is not green at the good end 2025-12 (fail, fail, fail" in ran("-", "-")[1]


def test_a_bad_end_that_is_rarely_red_is_refused() -> None:
    assert "the bad end is red in only 1 of 10 runs" in ran("+", "+-++++++++")[1]
