"""Runs a prepared bisection to its end, and makes its answer."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cases.space.verdict import Verdict
from matrix.bisect import commits
from matrix.bisect.answer import BisectAnswer, Certainty
from matrix.bisect.confidence import highest_flake_rate
from matrix.bisect.ends import FlakyDifferenceError
from matrix.bisect.search import differing
from matrix.bisect.state import State
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.space.case import Case
    from matrix.bisect.answer import Culprit
    from matrix.bisect.search import Bisection, Guilty
    from matrix.environments.repository import Repository
    from matrix.run.outcome import Outcome
    from matrix.versions.moved_packages import MovedPackage


def answered(bisection: Bisection, case: Case, repository: Repository | None, *, began: float) -> BisectAnswer:
    """Run the search to its end."""
    bisection.run_ends()
    guilty, culprits = found_culprits(bisection)
    no_commit = ""
    if repository is not None:
        try:
            culprits = with_commits(bisection, culprits, repository)
        except UserError as error:  # the packages and releases are an answer all the same
            no_commit = str(error)
    if bisection.failure is None:
        raise UserError("the bad end has no failure")
    pins, base, green = remedy(bisection, culprits)
    ctx = bisection.runner.ctx
    required = bisection.differences.packages(bisection.differences.closure(guilty.all) - guilty.culprits)
    first_bad = culprits[0].first_bad_set
    outcome = next(each for each in reversed(ctx.store.outcomes) if each.set == first_bad)
    return BisectAnswer(
        generated=datetime.now(UTC).replace(microsecond=0),
        case=case.id,
        good=bisection.good.candidate.key,
        bad=bisection.bad.candidate.key,
        device=ctx.device,
        hardware=ctx.hardware,
        verdict=bisection.failure.verdict,
        failure=bisection.failure.reason,
        cause=bisection.cause(bisection.failure),
        differing=len(bisection.differences.names),
        culprits=culprits,
        required=required,
        pins=pins,
        pins_base=base,
        pins_green=green,
        certainty=certainty(bisection),
        steps=tuple(bisection.steps),
        cells=sum(each.verdict is not Verdict.BLOCKED for each in ctx.store.outcomes),
        seconds=round(time.monotonic() - began, 1),
        log=outcome.evidence.get("log", next(iter(outcome.evidence.values()), "")),
        no_commit=no_commit,
    )


def found_culprits(bisection: Bisection) -> tuple[Guilty, tuple[Culprit, ...]]:
    """The guilty packages and their releases.

    If the failure turns out to flake only on the way, both are searched again: one run decided the steps until then.
    What ran is known, so that only further repeats run.

    Raises:
        FlakyDifferenceError: a repeat of the result differs from it.
    """
    was_known = bisection.rate.flakes
    try:
        guilty = bisection.guilty_groups()
        culprits = tuple(bisection.culprit(each, guilty) for each in sorted(guilty.culprits))
    except FlakyDifferenceError:
        if was_known or not bisection.rate.flakes:
            raise
        return found_culprits(bisection)
    return (guilty, culprits) if was_known or not bisection.rate.flakes else found_culprits(bisection)


def no_api(_: MovedPackage, __: Outcome) -> str:
    """No known change."""
    return ""


def with_api_changes(
    answer: BisectAnswer, bisection: Bisection, api: Callable[[MovedPackage, Outcome], str]
) -> BisectAnswer:
    """The answer with what each culprit changed in its API, which may be the reason."""
    if bisection.failure is None:
        return answer
    culprits = [each.model_copy(update={"api": api(each.move, bisection.failure)}) for each in answer.culprits]
    return answer.model_copy(update={"culprits": tuple(culprits)})


def with_commits(bisection: Bisection, culprits: tuple[Culprit, ...], repository: Repository) -> tuple[Culprit, ...]:
    """The culprits, with the commit that made the cell red for the one that the repository is of.

    Raises:
        UserError: the package has no two releases to compare, or the repository lacks one of them.
    """
    number = repository.culprit_of([each.package for each in culprits])
    culprit = culprits[number]
    lock = bisection.locks.get(culprit.first_bad_set)
    if lock is None or not (culprit.last_good and culprit.first_bad):
        raise UserError(f"--git: {culprit.package} has no two releases to compare; leave --git out")
    found = commits.first_bad_commit(bisection, culprit, lock, repository)
    return (*culprits[:number], culprit.model_copy(update={"commits": found}), *culprits[number + 1 :])


def remedy(bisection: Bisection, culprits: tuple[Culprit, ...]) -> tuple[dict[str, str], str, bool]:
    """Versions to use meanwhile: the bad set with the first culprit at its last good release, if that is green.

    Otherwise those of the last green candidate. Returns the pins, the set that they change, and whether it is green.
    """
    culprit, bad = culprits[0], bisection.bad.lock
    if culprit.last_good and culprit.first_bad:
        pins = {culprit.package: culprit.last_good}
        label = f"{bad.version_set.key} with {culprit.package} {culprit.last_good}"
        candidate = bisection.resolved(pins, bad, bad.versions, label=label)
        if bisection.test("pins", [candidate], bisection.rate.repeats)[candidate.key] is State.GREEN:
            moved = differing(bisection.bad.candidate, candidate)
            return {name: new for name, (_, new) in moved.items() if new}, bad.version_set.key, True
        moved_along = {name: old for name, (old, _) in culprit.moved_along.items() if old}
        return {culprit.package: culprit.last_good, **moved_along}, bisection.good.candidate.key, True
    return {}, bisection.good.candidate.key, True


def certainty(bisection: Bisection) -> Certainty:
    rate, runs = bisection.rate, bisection.boundary_runs
    flake_rate = 1.0 - rate.red / rate.runs
    return Certainty(
        end_runs=len(bisection.end_states.bad),
        flake_rate=round(flake_rate, 3),
        highest_flake_rate=round(flake_rate if rate.flakes else highest_flake_rate(rate.runs), 2),
        repeats=rate.step_repeats,
        boundary_runs=runs,
        # Each red candidate could have passed for green.
        confidence=round((1.0 - rate.missed_red(runs)) ** len(bisection.red_runs), 4),
    )
