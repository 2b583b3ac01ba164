"""Finds the packages, then the releases, that made a green cell red."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.bisect import candidate as candidates
from matrix.bisect.answer import Culprit, StepRecord
from matrix.bisect.boundary import find_boundary
from matrix.bisect.confidence import Ends, FailureRate
from matrix.bisect.ends import MINUTES, EndRuns, FlakyDifferenceError, words
from matrix.bisect.failure import no_cause, state_of, state_of_run
from matrix.bisect.minimal_set import MinimalSetSearch
from matrix.bisect.releases import NearbyResolution, bounds, releases_between
from matrix.bisect.state import State
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.run import pipeline
from matrix.versions.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.bisect.boundary import Boundary
    from matrix.bisect.candidate import MixedEnvironment
    from matrix.bisect.differences import Differences
    from matrix.bisect.releases import Release
    from matrix.bisect.runner import CandidateRunner
    from matrix.run.outcome import Outcome

BOUNDARY_RUNS: Final = 4  # runs of the last green and the first red release; the green one runs more if the cell flakes


@dataclass(frozen=True, kw_only=True)
class End:
    """The good or the bad end: its lock, and its installed environment as a candidate."""

    lock: Lock
    candidate: MixedEnvironment


@dataclass(frozen=True, kw_only=True)
class Guilty:
    """Groups of packages that together make the cell red: culprits, and companions without which it cannot run.

    ``separable`` is false if the cell cannot run without any one of the culprits.
    """

    culprits: frozenset[int]
    companions: frozenset[int] = frozenset()
    separable: bool = True

    @property
    def all(self) -> frozenset[int]:
        return self.culprits | self.companions


@dataclass(kw_only=True)
class Bisection:
    """A search between two ends.

    Attributes:
        runner: runs the cell in candidates.
        good: the end at which the cell is green.
        bad: the end at which it is red.
        differences: the packages that differ.
        cause: returns the known cause of a failure; empty if it is unknown.
        pre: try pre-releases as well.
        minutes: how long the search may take if the bad end flakes.
        say: prints the progress.
        steps: the tested candidates, in order.
        failure: the failure of the bad end, after ``run_ends``.
        end_states: the states of all runs of the ends, after ``run_ends``.
        red_runs: how often the failure shows in each red candidate, by its name.
    """

    runner: CandidateRunner
    good: End
    bad: End
    differences: Differences
    cause: Callable[[Outcome], str] = no_cause
    pre: bool = False
    minutes: float = MINUTES
    say: Callable[[str], object] = print
    steps: list[StepRecord] = field(default_factory=list)
    failure: Outcome | None = None
    locks: dict[str, Lock] = field(default_factory=dict)  # of the last green and first red candidates, by name
    end_states: Ends = field(default_factory=lambda: Ends(good=(), bad=()))
    red_runs: dict[str, FailureRate] = field(default_factory=dict)

    # The ends.

    def run_ends(self) -> None:
        """Run both ends a few times, and more often if only the runs of the bad end disagree.

        Raises:
            FlakyDifferenceError: the difference does not reproduce, or its search would take too long.
            UserError: the cell is not green at the good end, or not red at the bad one.
        """
        found = self.end_runs.measured()
        self.failure, self.end_states = found.failure, found.states
        self.note("ends", self.good.candidate, found.good)
        self.note("ends", self.bad.candidate, found.bad)
        self.runner.is_failure = lambda outcome: self.states([outcome]) == (State.RED,)

    @cached_property
    def end_runs(self) -> EndRuns:
        """The runs of the ends; its time begins at the first use."""
        good, bad = self.good.candidate, self.bad.candidate
        return EndRuns(runner=self.runner, good=good, bad=bad, cause=self.cause, minutes=self.minutes)

    def states(self, outcomes: Sequence[Outcome]) -> tuple[State, ...]:
        return tuple(state_of_run(each, self.failure, self.cause) for each in outcomes)

    # The packages.

    def guilty_groups(self) -> Guilty:
        """The smallest set of differing packages that makes the cell red, as numbers of groups."""
        groups = self.differences.groups
        self.say(f"{counted(len(self.differences.names), 'differing package')}, in {counted(len(groups), 'group')}")
        traceback = self.failure.error.traceback if self.failure and self.failure.error else ""
        search = MinimalSetSearch(
            count=len(groups),
            test=self.test_groups,
            confirm=lambda sets: self.test_groups(sets, self.rate.repeats),
            closure=self.differences.closure,
            width=self.runner.width,
            weights=self.differences.weights(traceback),
        )
        red, culprits = search.culprits(search.run())
        if not culprits:
            return Guilty(culprits=red, separable=False)
        return Guilty(culprits=culprits, companions=red - culprits)

    def test_groups(self, sets: Sequence[frozenset[int]], repeats: int = 0) -> dict[frozenset[int], State]:
        by_set = {each: self.mixed(each) for each in sets}
        states = self.test("packages", list(by_set.values()), repeats)
        return {each: states[candidate.key] for each, candidate in by_set.items()}

    def mixed(self, groups: frozenset[int]) -> MixedEnvironment:
        """The good end with some groups of packages as the bad end has them."""
        names = self.differences.packages(groups)
        label = f"{counted(len(names), 'package')} of {self.bad.candidate.key}: {', '.join(names)}"
        return candidates.mixed(self.good.lock, self.bad.lock, names, label=label)

    # The releases of one package.

    def culprit(self, group: int, guilty: Guilty) -> Culprit:
        """The release of a package that made the cell red, with the other guilty packages as at the bad end.

        Raises:
            FlakyDifferenceError: a repeat of the result differs from it.
        """
        main = self.differences.groups[group].main
        others = guilty.all - {group} if guilty.separable else frozenset()
        before = self.mixed(self.differences.closure(others))
        after = self.mixed(self.differences.closure(guilty.all))
        old, new = version_in(before, main), version_in(after, main)
        if not old or not new:  # only one end has the package
            return Culprit(package=main, last_good=old, first_bad=new, first_bad_set=after.key)
        runner = self.runner
        python = self.good.lock.version_set.python
        releases = releases_between(main, old, new, python=python, uv=runner.ctx.uv, pre=self.pre)
        self.say(f"{main}: {counted(len(releases), 'release')} from {old} to {new}")
        fixed = {each: version_in(after, each) for each in map(self.main, others)}
        tried: dict[int, MixedEnvironment] = {0: before, len(releases) - 1: after}

        def test(indices: Sequence[int]) -> dict[int, State]:
            tried.update({each: self.of_release(main, releases[each], fixed, before) for each in indices})
            states = self.test("releases", [tried[each] for each in indices])
            return {each: states[tried[each].key] for each in indices}

        boundary = find_boundary(len(releases), test, width=runner.width)
        while not self.is_confirmed(tried[boundary.last_good], tried[boundary.first_bad]):
            if not boundary.last_good:
                raise FlakyDifferenceError(f"{before.label} was green, then red; the good end flakes")
            boundary = find_boundary(len(releases), test, width=runner.width)  # what is known by now does not run again
        ends = (tried[boundary.last_good], tried[boundary.first_bad])
        self.locks |= {each.key: lock_of(each) for each in ends}
        return self.described(main, releases, boundary, tried)

    def described(
        self, main: str, releases: Sequence[Release], boundary: Boundary, tried: Mapping[int, MixedEnvironment]
    ) -> Culprit:
        last, first = releases[boundary.last_good], releases[boundary.first_bad]
        moved = differing(tried[boundary.last_good], tried[boundary.first_bad])
        return Culprit(
            package=main,
            last_good=last.version,
            first_bad=first.version,
            last_good_uploaded=last.uploaded,
            first_bad_uploaded=first.uploaded,
            untestable=tuple(releases[each].version for each in boundary.untestable),
            moved_along={name: both for name, both in moved.items() if name != main},
            first_bad_set=tried[boundary.first_bad].key,
        )

    def main(self, group: int) -> str:
        return self.differences.groups[group].main

    def of_release(
        self, main: str, release: Release, fixed: Mapping[str, str], before: MixedEnvironment
    ) -> MixedEnvironment:
        """A candidate near the good end with a package at one release."""
        pins = {**fixed, main: release.version}
        return self.resolved(pins, self.good.lock, lock_of(before).versions, label=f"{main} {release.version}")

    def resolved(self, pins: Mapping[str, str], base: Lock, near: Mapping[str, str], *, label: str) -> MixedEnvironment:
        """A candidate with some exact versions and as few other moves as possible; its lock is kept."""
        key = candidates.key_of(base.version_set.key, pins, (), str(pins))
        path = self.runner.ctx.store.directory / pipeline.LOCKS / f"{key}.txt"
        if path.exists():
            text: str | Evidence = path.read_text(encoding="utf-8")
        else:
            text = self.resolution(base, near).resolve(pins)
        if isinstance(text, Evidence):
            return candidates.unresolvable(text, base=base, label=label, named=pins)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return candidates.of_text(text, base=base, bad=self.bad.lock.version_set, label=label, named=pins)

    def resolution(self, base: Lock, near: Mapping[str, str]) -> NearbyResolution:
        good, bad = self.differences.good.versions, self.differences.bad.versions
        return NearbyResolution(
            base=near,
            bounds=bounds(good, bad, self.differences.names),
            extras=tuple(base.version_set.extras),
            optional=frozenset(good.keys() ^ bad.keys()),
            as_of=max(self.good.lock.version_set.as_of, self.bad.lock.version_set.as_of),
            python=base.version_set.python,
            uv=self.runner.ctx.uv,
        )

    # All phases.

    def is_confirmed(self, last_good: MixedEnvironment, first_bad: MixedEnvironment) -> bool:
        """Repeat the boundary; return whether the last good release is as green as the answer claims.

        If it is red after all, the failure flakes, and it was green by chance.

        Raises:
            FlakyDifferenceError: the good end, or the last good release, is red with another failure or by chance.
        """
        distinct = {each.key: each for each in (first_bad, last_good, self.good.candidate)}  # the last two may be one
        together = self.runner.measure_ends([*distinct.values()], BOUNDARY_RUNS)
        self.observe(first_bad, together[first_bad.key])
        for each in (last_good, self.good.candidate):
            known = self.runner.measure([each], self.boundary_runs)[each.key]
            self.observe(each, known)
            state = state_of(known, self.failure, self.cause)
            if state is State.RED and each is last_good:
                return False
            if state is not State.GREEN:
                raise FlakyDifferenceError(f"{each.label} was green, then not ({words(known)}); the cell flakes")
        return True

    @property
    def rate(self) -> FailureRate:
        """How often the failure shows, by the runs of all red candidates."""
        runs = self.red_runs.values()
        return FailureRate(red=sum(each.red for each in runs), runs=sum(each.runs for each in runs))

    def observe(self, candidate: MixedEnvironment, outcomes: Sequence[Outcome]) -> None:
        """Count the runs of a red candidate; those of others say nothing about the rate."""
        states = self.states(outcomes)
        if State.RED in states and State.UNTESTABLE not in states:
            self.red_runs[candidate.key] = FailureRate(red=states.count(State.RED), runs=len(states))

    @property
    def boundary_runs(self) -> int:
        return max(BOUNDARY_RUNS, self.rate.repeats)

    def test(self, phase: str, tested: Sequence[MixedEnvironment], repeats: int = 0) -> dict[str, State]:
        """The state of each candidate by its name.

        A candidate is green after so many ``repeats`` without the failure; by default, after those of a step, whose
        result the search corrects later.

        Raises:
            FlakyDifferenceError: the bad end flakes, and the time for the search is over.
        """
        if self.rate.flakes:
            self.end_runs.refuse_if_over(self.rate)
        states: dict[str, State] = {}
        outcomes = self.runner.measure(tested, repeats or self.rate.step_repeats)
        for each in tested:
            states[each.key] = self.note(phase, each, outcomes[each.key])
        return states

    def note(self, phase: str, candidate: MixedEnvironment, outcomes: Sequence[Outcome]) -> State:
        state = state_of(outcomes, self.failure, self.cause)
        self.observe(candidate, outcomes)
        shown = next((each for each in outcomes if each.verdict is not Verdict.PASS), outcomes[-1])
        record = StepRecord(
            phase=phase,
            candidate=candidate.label,
            set=candidate.key,
            state=state.value,
            verdict=shown.verdict,
            reason=shown.reason,
            runs=len(outcomes),
        )
        if record not in self.steps:
            self.steps.append(record)
            why = f" ({shown.verdict.value}: {shown.reason[:100]})" if state is State.UNTESTABLE else ""
            self.say(f"{state.value}: {candidate.label}{why}")
        return state


def lock_of(candidate: MixedEnvironment) -> Lock:
    if isinstance(candidate.lock, Lock):
        return candidate.lock
    raise UserError(f"{candidate.label} cannot be resolved: {candidate.lock.reason}")


def version_in(candidate: MixedEnvironment, package: str) -> str:
    return lock_of(candidate).versions.get(package, "")


def differing(one: MixedEnvironment, other: MixedEnvironment) -> dict[str, tuple[str, str]]:
    """Both versions of each package that differs; empty where a candidate lacks it."""
    old, new = lock_of(one).versions, lock_of(other).versions
    names = sorted(old.keys() | new.keys())
    return {name: (old.get(name, ""), new.get(name, "")) for name in names if old.get(name) != new.get(name)}
