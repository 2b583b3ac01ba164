"""Draws the answer of a bisection as text and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.plural import counted
from matrix.bisect.state import State
from matrix.keys import CellKey
from matrix.versions.moved_packages import MovedPackage
from reports.render.markdown import code, one_line, table
from reports.results.wording import seconds_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.bisect.answer import BisectAnswer, Certainty, CommitRange, Culprit, StepRecord


def text(answer: BisectAnswer, directory: Path) -> str:
    """The answer for a terminal."""
    return "\n".join(lines(answer, directory))


def lines(answer: BisectAnswer, directory: Path) -> Iterator[str]:
    yield culprit_words(answer)
    for each in answer.culprits:
        yield from details(each)
    if answer.no_commit:
        yield f"  no commit: {one_line(answer.no_commit)}"
    yield f"  cell: {CellKey(answer.culprits[0].first_bad_set, answer.case)} is {answer.verdict.value}"
    yield f"  failure: {one_line(answer.failure)}"
    if answer.cause:
        yield f"  cause: {answer.cause}"
    if answer.required:
        yield f"  moved with it, as it needs them: {', '.join(answer.required)}"
    yield f"  use meanwhile: {pin_words(answer)}"
    yield f"  certainty: {certainty_words(answer.certainty)}"
    yield f"  {counted(len(answer.steps), 'step')}, {counted(answer.cells, 'cell')}, {seconds_words(answer.seconds)}"
    yield f"  log: {directory / answer.log if answer.log else directory}"


def culprit_words(answer: BisectAnswer) -> str:
    """The culprits; several break only together."""
    return " together with ".join(map(release_words, answer.culprits))


def release_words(culprit: Culprit) -> str:
    """Such as ``peft 0.12.0 (2024-07-24)``, or a range if releases could not be tested."""
    if not culprit.first_bad:
        return f"the removal of {culprit.package} {culprit.last_good}"
    if not culprit.last_good:
        return f"the addition of {culprit.package} {culprit.first_bad}"
    day = f" ({culprit.first_bad_uploaded})" if culprit.first_bad_uploaded else ""
    if culprit.untestable:
        return f"{culprit.package} after {culprit.last_good}, up to {culprit.first_bad}{day}"
    return f"{culprit.package} {culprit.first_bad}{day}"


def details(culprit: Culprit) -> Iterator[str]:
    if culprit.last_good and culprit.first_bad:
        day = f" ({culprit.last_good_uploaded})" if culprit.last_good_uploaded else ""
        yield f"  {culprit.package}: last good {culprit.last_good}{day}, first bad {culprit.first_bad}"
    if culprit.untestable:
        yield f"  untestable between them: {', '.join(culprit.untestable)}"
    if culprit.moved_along:
        moved = (MovedPackage(name=name, old=old, new=new) for name, (old, new) in culprit.moved_along.items())
        yield f"  also differs between them: {', '.join(map(str, moved))}"
    commits = culprit.commits
    if commits:
        yield from commit_lines(commits)
    if culprit.api:
        yield f"  {culprit.api} (`ftmatrix map changes {culprit.package} {culprit.last_good} {culprit.first_bad}`)"


def commit_lines(commits: CommitRange) -> Iterator[str]:
    if commits.repair:
        sha, other, role = commits.last_good, commits.first_bad, "repaired by a commit that the bad release lacks"
    else:
        sha, other, role = commits.first_bad, commits.last_good, "first bad commit"
    yield f"  {role}: {sha[:12]} ({commits.committed}) {commits.title}"
    if commits.untestable:
        yield f"  {counted(len(commits.untestable), 'commit')} between {other[:12]} and it: untestable"


def pin_words(answer: BisectAnswer) -> str:
    pins = " ".join(f"{name}=={version}" for name, version in answer.pins.items())
    state = "the cell is green there" if answer.pins_green else "not run"
    return f"{answer.pins_base} with {pins}; {state}" if pins else f"{answer.pins_base}; {state}"


def certainty_words(sure: Certainty) -> str:
    flakes = (
        f"{sure.flake_rate:.0%} of its red runs did not show the failure"
        if sure.flake_rate
        else f"no flake, so the rate is below {sure.highest_flake_rate:.0%} at 95 % confidence"
    )
    return (
        f"the bad end ran {counted(sure.end_runs, 'time')} ({flakes}); a step is green after"
        f" {counted(sure.repeats, 'run')}, the last good release after {sure.boundary_runs};"
        f" {sure.confidence:.1%} that nothing in this answer is green by chance"
    )


def markdown(answer: BisectAnswer, directory: Path) -> str:
    """The answer and every step."""
    head = [f"# {code(answer.case)}: {answer.good} to {answer.bad}", markdown_section(answer, title="## Answer")]
    rows = [
        (
            each.phase,
            code(each.set),
            one_line(each.candidate),
            each.state,
            each.verdict.value,
            str(each.runs),
            why(each),
        )
        for each in answer.steps
    ]
    steps = table(("phase", "set", "candidate", "state", "verdict", "runs", "reason"), rows)
    return "\n\n".join([*head, "## Steps", steps, f"Run directory: {code(str(directory))}"]) + "\n"


def why(step: StepRecord) -> str:
    return code(one_line(step.reason)[:160]) if step.state == State.UNTESTABLE.value and step.reason else ""


def markdown_section(answer: BisectAnswer, *, title: str = "## Bisection") -> str:
    """The answer as a section, e.g. of a bug report."""
    items = [f"Between {answer.good} and {answer.bad}, {counted(answer.differing, 'differing package')}."]
    items += [f"The cell became red with {culprit_words(answer)}."]
    items += [line.strip() for each in answer.culprits for line in details(each)]
    items += [f"No commit: {one_line(answer.no_commit)}."] if answer.no_commit else []
    items += [f"Failure: {code(one_line(answer.failure))}"]
    items += [f"To use meanwhile: {pin_words(answer)}.", f"Certainty: {certainty_words(answer.certainty)}."]
    effort = f"{counted(len(answer.steps), 'step')}, {counted(answer.cells, 'cell')}, {seconds_words(answer.seconds)}"
    items += [f"{effort} on {answer.hardware}."]
    return "\n".join([title, "", *(f"* {each}" for each in items)]) + "\n"
