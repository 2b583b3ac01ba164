"""Simulates searches of failures that do not show in every run, and counts right, wrong and refused answers.

``python tests/matrix/bisect/test_simulated_searches.py`` prints the table of docs/bisect.md. The search is the real
one, of the ends, the packages, the releases and the versions to use meanwhile; the cell and the index are simulated.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import date
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from cases.space.verdict import Verdict
from matrix.bisect import candidate as candidates
from matrix.bisect.answering import found_culprits, remedy
from matrix.bisect.differences import Differences, Packages
from matrix.bisect.releases import Release
from matrix.bisect.runner import CandidateRunner
from matrix.bisect.search import Bisection, End
from matrix.errors import UserError
from matrix.run.outcome import ErrorRecord, Outcome
from matrix.versions.locks import Lock
from matrix.versions.sets import PACKAGES, VersionSet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.bisect.candidate import MixedEnvironment

NAMES = tuple(f"package{number:02}" for number in range(64))
RELEASES = 33  # of each package, both ends included: 64 times 32 candidates for the first bad one
SEARCHES = 1500  # of the table
FEW = 40  # of a test
RIGHT, WRONG, REFUSED = "right", "wrong", "refused"
PASS = Outcome.model_construct(verdict=Verdict.PASS, error=None, checks=(), reason="")
FAIL = Outcome.model_construct(
    verdict=Verdict.FAIL, error=ErrorRecord(type="ValueError", message="x"), checks=(), reason="ValueError: x"
)


def end(key: str, version: int) -> End:
    pins = dict.fromkeys(PACKAGES, "1.0")
    version_set = VersionSet(key=key, python="3.11", as_of=date(2025, 12, 15), why="simulated", pins=pins)
    lock = Lock(version_set=version_set, text="".join(f"{name}=={version}\n" for name in NAMES))
    return End(lock=lock, candidate=candidates.MixedEnvironment(label=key, version_set=version_set, lock=lock))


GOOD, BAD = end("good", 0), end("bad", RELEASES - 1)
DIFFERENCES = Differences(
    good=Packages(versions=GOOD.lock.versions, requires={}), bad=Packages(versions=BAD.lock.versions, requires={})
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A failure that shows in a share of the runs, from a release of a package on or everywhere."""

    package: str
    release: int
    rate: float
    everywhere: bool = False

    def is_in(self, candidate: MixedEnvironment) -> bool:
        lock = candidate.lock
        return self.everywhere or (isinstance(lock, Lock) and int(lock.versions[self.package]) >= self.release)


@dataclass(kw_only=True)
class SimulatedRunner(CandidateRunner):
    """Draws the outcome of each run."""

    fault: Fault
    draw: random.Random
    outcomes: dict[str, list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    batches: list[tuple[str, ...]] = field(default_factory=list)

    def known(self, candidate: MixedEnvironment) -> tuple[Outcome, ...]:
        return tuple(self.outcomes[candidate.key])

    def run_once(self, candidates: Sequence[MixedEnvironment]) -> None:
        self.batches.append(tuple(each.key for each in candidates))
        for each in candidates:
            is_red = self.fault.is_in(each) and self.draw.random() < self.fault.rate
            self.outcomes[each.key].append(FAIL if is_red else PASS)
            self.cells_run += 1


class SimulatedBisection(Bisection):
    """A search whose releases fit each other."""

    def resolved(self, pins: Mapping[str, str], base: Lock, near: Mapping[str, str], *, label: str) -> MixedEnvironment:
        text = "".join(f"{name}=={version}\n" for name, version in {**near, **pins}.items())
        return candidates.of_text(text, base=base, bad=self.bad.lock.version_set, label=label, named=pins)


def answer(fault: Fault, draw: random.Random) -> tuple[str, SimulatedRunner]:
    """The kind of answer of one search, and what ran the cell."""
    ctx: Any = SimpleNamespace(uv=None)
    case: Any = SimpleNamespace(id="cell")
    runner = SimulatedRunner(ctx=ctx, case=case, ends=(), fault=fault, draw=draw)
    search = SimulatedBisection(
        runner=runner, good=GOOD, bad=BAD, differences=DIFFERENCES, minutes=float("inf"), say=lambda _: None
    )
    every = tuple(Release(version=str(each)) for each in range(RELEASES))
    try:
        with patch("matrix.bisect.search.releases_between", lambda *_, **__: every):
            search.run_ends()
            _, culprits = found_culprits(search)
            remedy(search, culprits)
    except UserError:
        return REFUSED, runner
    found = [(each.package, each.first_bad) for each in culprits]
    is_right = not fault.everywhere and found == [(fault.package, str(fault.release))]
    return RIGHT if is_right else WRONG, runner


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The number of answers of each kind, and the runs of the cell that these took together."""

    counts: Counter[str]
    runs: Counter[str]

    def share(self, kind: str) -> float:
        return self.counts[kind] / self.counts.total()

    def mean_runs(self, kind: str) -> float:
        return self.runs[kind] / self.counts[kind] if self.counts[kind] else float("nan")


def simulate(rate: float, *, everywhere: bool = False, searches: int = SEARCHES) -> Simulated:
    """Search the fault in a package and release drawn anew for each search, the same ones in every call."""
    draw = random.Random(f"{rate} {everywhere}")  # noqa: S311 - a seed makes the figures repeatable
    counts: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for _ in range(searches):
        fault = Fault(package=draw.choice(NAMES), release=draw.randrange(1, RELEASES), rate=rate, everywhere=everywhere)
        kind, runner = answer(fault, draw)
        counts[kind] += 1
        runs[kind] += runner.cells_run
    return Simulated(counts=counts, runs=runs)


def test_a_failure_in_every_run_is_always_found() -> None:
    assert simulate(1.0, searches=FEW).share(RIGHT) == 1.0


@pytest.mark.parametrize(("rate", "least"), [(0.7, 0.9), (0.5, 0.7)])
def test_most_failures_that_flake_are_found_and_hardly_any_wrongly(rate: float, least: float) -> None:
    found = simulate(rate, searches=FEW)
    assert found.share(RIGHT) >= least
    assert found.share(WRONG) <= 0.05


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7])
def test_a_failure_of_both_ends_is_refused(rate: float) -> None:
    assert simulate(rate, everywhere=True, searches=FEW).share(REFUSED) >= 0.95


@pytest.mark.parametrize("release", [1, 5])  # the last good release of the first is the good end
def test_the_boundary_and_the_good_end_repeat_at_once(release: int) -> None:
    fault = Fault(package=NAMES[7], release=release, rate=1.0)
    kind, runner = answer(fault, random.Random(0))  # noqa: S311 - nothing is drawn at this rate
    assert kind == RIGHT
    good, first_bad = "good", f"good+{NAMES[7]}{release}"
    last_good = good if release == 1 else f"good+{NAMES[7]}{release - 1}"
    assert {good, last_good, first_bad} in [{*each} for each in runner.batches]
    assert all(len({*each}) == len(each) for each in runner.batches)


def main() -> None:
    for rate, everywhere in (
        (0.3, False),
        (0.5, False),
        (0.7, False),
        (1.0, False),
        (0.3, True),
        (0.5, True),
        (0.7, True),
    ):
        found = simulate(rate, everywhere=everywhere)
        shares = " ".join(f"{kind} {found.share(kind):.1%}," for kind in (RIGHT, WRONG, REFUSED))
        runs = f"{found.mean_runs(RIGHT):.0f} runs of a right answer, {found.mean_runs(REFUSED):.0f} of a refusal"
        print(f"{rate:.0%}{' of both ends' if everywhere else ''}: {shares} {runs}", flush=True)


if __name__ == "__main__":
    main()
