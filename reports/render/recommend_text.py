"""Draws a recommendation as text for a terminal."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from matrix.keys import CellKey
from reports.answers.support.status import NOT_RUN, Standing
from reports.results.wording import again, headline, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.run.outcome import SetRecord
    from reports.answers.support.recommend import Candidate, Hint, Recommendation
    from reports.answers.support.status import Held

SHOWN: Final = 3  # cells, or other settings, of one set
LONGEST: Final = 110
CAUTION: Final = "These are CPU results (gloo); GPU results may differ."


def lines(found: Recommendation) -> list[str]:
    asked = [f"Needed: {each.terms}" for each in found.needs]
    given = [f"Given: {', '.join(map(str, found.have))}"] if found.have else []
    return [*asked, *given, "", *answer(found), *aside(found)]


def answer(found: Recommendation) -> list[str]:
    """Return the answer from the results of the device, and name the device."""
    if not found.measured:
        return [
            f"Unknown on {found.device}: there are no published results for {found.device}. To measure:",
            *(f"  ftmatrix run --device {found.device} --where '{each.terms}'" for each in found.needs),
        ]
    text = none_lines(found) if found.best is None else [*best_lines(found.best), *next_lines(found)]
    return [*text, *([CAUTION] if found.device == "cpu" else [])]


def aside(found: Recommendation) -> list[str]:
    """Return the answer from CPU results, if the results of the device give none."""
    if found.on_cpu is None:
        return []
    return ["", "CPU results, which may not hold for a GPU:", *(f"  {line}" for line in answer(found.on_cpu))]


def best_lines(best: Candidate) -> list[str]:
    return [
        f"Pin the set {best.key}: {versions(best.column)}",
        *(line for held in best.held for line in held_lines(held)),
        f"Measured: {best.measured}, {best.hardware}",
        f"Run it again: {again(best.key, ','.join(o.case for o in best.outcomes), backend=best.column.torch_backend)}",
    ]


def held_lines(held: Held) -> list[str]:
    if held.standing is Standing.GREEN:
        return [f"  green: {held.need.text}", *(f"    cell {CellKey(held.set, case)}" for case in held.proof)]
    first, *more = held.greens
    others = [green.words for green in more if not first.settings.items() <= green.settings.items()][:SHOWN]
    plain = "" if held.avoid else "; not run without it"
    return [
        f"  green with {first.words}: {held.need.text}{plain}",
        f"    cell {CellKey(held.set, first.case)}",
        *(f"    or with {words}" for words in others),
        *(f"    avoid, it is red: {CellKey(held.set, case)}" for case in held.avoid),
    ]


def versions(column: SetRecord) -> str:
    pins = " ".join(f"{name}=={version}" for name, version in column.pins.items())
    return f"{pins} (Python {column.python})"


def next_lines(found: Recommendation) -> list[str]:
    others = [f"{each.key}{f' (with {each.settings})' if each.settings else ''}" for each in found.others]
    told = [f"Next best: {', '.join(others)}"] if others else ["Next best: no other set is green."]
    if found.as_it_is is not None:
        told.append(f"Newest set that needs no setting: {found.as_it_is.key}")
    return told


def none_lines(found: Recommendation) -> list[str]:
    if not found.considered:
        return ["No published set has these versions together.", *hint_lines(found.hints)]
    fitting = " with these versions" if found.have else ""
    text = [f"No set is green: none of the {found.considered} published sets{fitting}."]
    if found.nearest is not None:
        text.append(f"Nearest: {found.nearest.key}, {versions(found.nearest.column)}")
    text.extend(f"No published run has a case for: {each.terms}" for each in found.unmeasured)
    return [*text, *in_the_way(found), *hint_lines(found.hints)]


def in_the_way(found: Recommendation) -> list[str]:
    """Return the obstacles per set, the newest first; adjacent sets with the same obstacles share an entry."""
    told = (
        (each.key, tuple(line for held in each.unmet for line in obstacle(each, held))) for each in found.in_the_way
    )
    lines: list[str] = []
    for why, sets in groupby(told, key=lambda each: each[1]):
        keys = [key for key, _ in sets]
        lines.extend([f"  {', '.join(keys)}", *(f"    {line}" for line in why)])
    untried = found.considered - len(found.in_the_way)
    silent = [f"  {untried} set{'s' * (untried > 1)}: {NOT_RUN}"] if untried else []
    return ["Obstacles:", *lines, *silent] if lines else []


def obstacle(candidate: Candidate, held: Held) -> Iterator[str]:
    yield f"{held.need.text}: {held.standing.value}" + (f", {trimmed(held.reason, LONGEST)}" if held.reason else "")
    said = {outcome.case: outcome for outcome in candidate.outcomes}
    for case in held.proof[:SHOWN]:
        yield f"  {case}: {said[case].verdict.value}, {headline(said[case], LONGEST)}"
    if len(held.proof) > SHOWN:
        yield f"  and {len(held.proof) - SHOWN} more"


def hint_lines(hints: Sequence[Hint]) -> list[str]:
    vain = [each.gives_up for each in hints if not each.key]
    useful = [f"Without {each.gives_up}{each.instead}: {each.key}" for each in hints if each.key]
    return [*useful, *([f"Dropping one of these does not help: {'; '.join(vain)}"] if vain else [])]


def how(candidate: Candidate) -> str:
    """Return the settings that a set needs, for a table."""
    return "as it is" if candidate.as_it_is else f"with {candidate.settings}"
