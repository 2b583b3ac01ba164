"""Draws a recommendation as text for a terminal."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.keys import CellKey
from reports.answers.support.status import NOT_RUN, SupportStatus
from reports.render.text.pairs_text import kept_lines
from reports.results.wording import again, headline, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.run.outcome import SetRecord
    from reports.answers.support.candidates import Candidate
    from reports.answers.support.recommend import Hint, Recommendation
    from reports.answers.support.status import QueryStatus

SHOWN: Final = 3  # cells, or other settings, of one set
LONGEST: Final = 110
CAUTION: Final = "These are CPU results (gloo); GPU results may differ."


def lines(result: Recommendation) -> list[str]:
    request = [f"Needed: {each.terms}" for each in result.queries]
    given = [f"Given: {', '.join(map(str, result.have))}"] if result.have else []
    return [*request, *given, "", *answer(result), *cpu_lines(result)]


def answer(result: Recommendation) -> list[str]:
    """Return the answer from the results of the device, and name the device."""
    if not result.measured:
        return [
            f"Unknown on {result.device}: there are no published results for {result.device}. To measure:",
            *(f"  ftmatrix run --device {result.device} --where '{each.terms}'" for each in result.queries),
        ]
    text = none_lines(result) if result.best is None else [*best_lines(result.best), *next_lines(result)]
    return [*text, *([CAUTION] if result.device == "cpu" else [])]


def cpu_lines(result: Recommendation) -> list[str]:
    """Return the answer from CPU results, if the results of the device give none."""
    if result.on_cpu is None:
        return []
    return ["", "CPU results, which may not hold for a GPU:", *(f"  {line}" for line in answer(result.on_cpu))]


def best_lines(best: Candidate) -> list[str]:
    return [
        f"Pin the set {best.key}: {versions(best.column)}",
        *(line for query_status in best.statuses for line in held_lines(query_status)),
        *(line for query_status in best.implied for line in later_lines(query_status)),
        f"Measured: {best.measured}, {best.hardware}",
        f"Run it again: {again(best.key, ','.join(o.case for o in best.outcomes), backend=best.column.torch_backend)}",
    ]


def held_lines(query_status: QueryStatus) -> list[str]:
    if query_status.status is SupportStatus.GREEN:
        return [
            f"  green: {query_status.query.text}",
            *(f"    cell {CellKey(query_status.set, case)}" for case in query_status.proof),
        ]
    first, *more = query_status.greens
    others = [green.words for green in more if not first.settings.items() <= green.settings.items()][:SHOWN]
    plain = "" if query_status.avoid else "; not run without it"
    return [
        f"  green with {first.words}: {query_status.query.text}{plain}",
        f"    cell {CellKey(query_status.set, first.case)}",
        *(f"    or with {words}" for words in others),
        *(f"    avoid, it is red: {CellKey(query_status.set, case)}" for case in query_status.avoid),
    ]


def later_lines(query_status: QueryStatus) -> list[str]:
    """Return the lines of what follows training."""
    if query_status.status is SupportStatus.UNKNOWN:
        return [f"  unknown: {query_status.query.text}, {query_status.reason}"]
    return held_lines(query_status)


def versions(column: SetRecord) -> str:
    pins = " ".join(f"{name}=={version}" for name, version in column.pins.items())
    return f"{pins} (Python {column.python})"


def next_lines(result: Recommendation) -> list[str]:
    others = [f"{each.key}{f' (with {each.settings})' if each.settings else ''}" for each in result.others]
    text = [f"Next best: {', '.join(others)}"] if others else ["Next best: no other set is green."]
    if result.without_settings is not None:
        text.append(f"Newest set that needs no setting: {result.without_settings.key}")
    return text


def none_lines(result: Recommendation) -> list[str]:
    if not result.considered:
        text = ["No published set has these versions together.", *kept_lines(result.kept)]
        return [*text, *around_lines(result), *hint_lines(result.hints)]
    fitting = " with these versions" if result.have else ""
    sets = counted(result.considered, "published set")
    text = [f"No set is green: none of the {sets}{fitting}."]
    if result.have and not result.obstacles and not result.unmeasured:
        text = [f"Unknown: no run on {'the' if result.considered == 1 else 'any of the'} {sets}{fitting} answers this."]
    if result.nearest is not None:
        text.append(f"Nearest: {result.nearest.key}, {versions(result.nearest.column)}")
    text.extend(f"No published run has a case for: {each.terms}" for each in result.unmeasured)
    text += kept_lines(result.kept)
    return [*text, *obstacles(result), *around_lines(result), *hint_lines(result.hints)]


def around_lines(result: Recommendation) -> list[str]:
    """Return the good sets before and after the given versions, and the versions between them, which are inferred."""
    if not result.around:
        return []
    before, after = (each.column.pins for each in result.around)
    given = {each.name for each in result.have}
    moved = [f"{name} {old} to {after[name]}" for name, old in before.items() if name not in given]
    return [
        f"Green before and after: {' and '.join(f'{each.key}, {versions(each.column)}' for each in result.around)}",
        f"Between them, not measured: {', '.join(moved)}",
    ]


def obstacles(result: Recommendation) -> list[str]:
    """Return the obstacles per set, the newest first; adjacent sets with the same obstacles share an entry."""
    reasons = (
        (each.key, (*(line for query_status in each.unmet for line in obstacle(each, query_status)), *errors(each)))
        for each in result.obstacles
    )
    lines: list[str] = []
    for why, sets in groupby(reasons, key=lambda each: each[1]):
        keys = [key for key, _ in sets]
        lines.extend([f"  {', '.join(keys)}", *(f"    {line}" for line in why)])
    untried = result.considered - len(result.obstacles)
    silent = [f"  {counted(untried, 'set')}: {NOT_RUN}"] if untried else []
    return ["Obstacles:", *lines, *silent] if lines else []


def errors(candidate: Candidate) -> Iterator[str]:
    yield from (f"known error {each.finding.id}: {each.finding.title}" for each in candidate.errors)


def obstacle(candidate: Candidate, query_status: QueryStatus) -> Iterator[str]:
    yield f"{query_status.query.text}: {query_status.status.value}" + (
        f", {trimmed(query_status.reason, LONGEST)}" if query_status.reason else ""
    )
    stated_outcomes = {outcome.case: outcome for outcome in candidate.outcomes}
    for case in query_status.proof[:SHOWN]:
        yield f"  {case}: {stated_outcomes[case].verdict.value}, {headline(stated_outcomes[case], LONGEST)}"
    if len(query_status.proof) > SHOWN:
        yield f"  and {len(query_status.proof) - SHOWN} more"


def hint_lines(hints: Sequence[Hint]) -> list[str]:
    vain = [each.gives_up for each in hints if not each.key]
    useful = [f"Without {each.gives_up}{each.instead}: {each.key}" for each in hints if each.key]
    return [*useful, *([f"Dropping one of these does not help: {'; '.join(vain)}"] if vain else [])]


def none_of(recommendation: Recommendation) -> str:
    """Return why a table names no set: the known errors of sets whose cells are green."""
    found = [
        f"{', '.join(each.finding.id for each in one.errors)} on {one.key}"
        for one in recommendation.obstacles
        if one.errors
    ]
    return f"none of these sets (known errors: {'; '.join(found)})" if found else "none of these sets"


def how(candidate: Candidate) -> str:
    """Return the settings that a set needs, for a table."""
    return "as it is" if candidate.without_settings else f"with {candidate.settings}"
