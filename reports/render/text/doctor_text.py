"""Draws a checkup as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cases.space.plural import counted
from matrix.versions.sets import PACKAGES
from reports.answers.checkup.installed import short
from reports.answers.checkup.places import on_words
from reports.answers.configuration import configs
from reports.answers.configuration.dialects import torchrun
from reports.answers.judgement import coverage, nearest_sets
from reports.answers.judgement.flows import WORDS
from reports.answers.judgement.judge import JobStatus
from reports.answers.scripts.hints import in_code
from reports.results.wording import device_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from reports.answers.checkup.doctor import Checkup
    from reports.answers.checkup.problems import CheckupProblem
    from reports.answers.checkup.repairs import Repair, VersionMove
    from reports.answers.configuration.job import TrainingJob

SCHEMA: Final = 1
SHOWN_IDS: Final = 4
PROCESS_COUNTS: Final = ("num_processes", torchrun.PROCESSES)  # of accelerate and torchrun
SHOWN: Final = 8  # causes of red cells; an environment can have a hundred


def lines(checkup: Checkup) -> Iterator[str]:
    """Yield the checkup as lines of text."""
    yield from environment_lines(checkup)
    yield from job_lines(checkup)
    for each in checkup.problems:
        yield from problem_lines(each, "Problem")
    for each in checkup.possible:
        yield from problem_lines(each, "Possible problem, as no file says otherwise")
    yield from note_lines(checkup)
    yield from (f"Breaks when it is used: {each}" for each in checkup.used_later[:SHOWN])
    if len(checkup.used_later) > SHOWN:
        yield f"  and {len(checkup.used_later) - SHOWN} more in --json"
    if checkup.job is None:
        yield from red_lines(checkup)
    yield from change_lines(checkup)
    yield from (f"Unknown: {each}" for each in checkup.unknown)
    if checkup.job is not None:
        yield from (f"Not measured: {each}" for each in checkup.job.not_judged)
        for name, keys in checkup.job.unread.items():
            if keys:
                yield f"Ignored in {name}: {', '.join(keys)}"
    yield summary(checkup)


def environment_lines(checkup: Checkup) -> Iterator[str]:
    installed = checkup.installed
    has = ", ".join(f"{name} {version}" for name, version in installed.versions.items())
    python = f"Python {installed.python}: " if installed.python else ""
    name = f"Versions from {installed.source}" if installed.source else f"Environment {installed.where}"
    yield f"{name}: {python}{has}"
    yield from (f"  {note}" for note in installed.notes)
    if installed.missing:
        yield f"  {'not installed' if installed.whole else 'not given'}: {', '.join(installed.missing)}"
    if checkup.same:
        which = (
            "measured as" if set(PACKAGES) <= checkup.installed.versions.keys() else "its packages have the versions of"
        )
        yield f"  {which} {', '.join(checkup.same)}, on {device_words(checkup.device)}"
    elif checkup.nearest is not None:
        off = nearest_sets.differing_packages(installed.versions, checkup.nearest, tuple(installed.versions))
        differing = [f"{name} {checkup.nearest.pins[name]}" for name in off]
        if installed.python and short(installed.python) != short(checkup.nearest.python):
            differing.append(f"Python {checkup.nearest.python}")
        differs = ", ".join(differing)
        yield f"  these versions were not measured; the nearest set is {checkup.nearest.key}, with {differs}"
    yield from (f"  measured with {each}" for each in checkup.differences)
    yield from (f"  results: {place}" for place in checkup.places)


def job_lines(checkup: Checkup) -> Iterator[str]:
    job = checkup.job
    if job is None:
        return
    files = " + ".join(f"{each.path.name} ({each.dialect.name})" for each in job.configs)
    values = job.options.stated if job.options else job.values
    plain = {name for name, value in values.items() if value == coverage.DEFAULTS.get(name)}
    stated = [name for name in values if name != "flow" and (name in coverage.GOAL or name not in plain)]
    shown = [f"{name}={shown_value(job, name, values[name])}" for name in stated]
    yield f"Job {files}: {' '.join(shown)}"
    yield from (f"  {note}" for note in job.notes)


def shown_value(job: TrainingJob, name: str, value: object) -> str:
    """Return the value of an option. A number of the file for which a measured one stands comes first."""
    if not isinstance(value, int) or isinstance(value, bool):
        return str(value)
    source = job.sources.get(name)
    stated = [source.config.values.get(key) for key in source.keys] if source is not None and source.config else []
    if name == "world_size":
        stated += [each.values.get(key) for each in job.configs for key in PROCESS_COUNTS]
    number = next((each for each in stated if isinstance(each, int) and not isinstance(each, bool)), value)
    return str(value) if number == value else f"{number} (judged as {value})"


def note_lines(checkup: Checkup) -> Iterator[str]:
    """Yield what the stack's authors chose, and the errors that only the user's code can meet."""
    for each in checkup.notes:
        yield f"Note, {each.finding.no_bug or 'wrong numbers in logs only'}: {each.finding.title}"
    ids = [each.finding.id for each in checkup.in_code]
    if ids:
        more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
        yield f"Errors that code of your own may meet with these versions: {', '.join(ids[:SHOWN_IDS])}{more}"


def problem_lines(each: CheckupProblem, label: str) -> Iterator[str]:
    flow = f" when {each.flow}" if each.flow else ""
    yield f"{label}{flow}: {each.what}"
    if each.why:
        yield f"  why: {each.why}"
    if each.inferred:
        yield f"  inferred from {each.inferred}; not measured with these versions"
    if each.shown_by:
        yield f"  {shown_on(each.hardware)} by {each.shown_by}"
    yield from (f"  see {link}" for link in each.links)


def red_lines(checkup: Checkup) -> Iterator[str]:
    """Yield the known failures of an environment, for a checkup without a job."""
    where = ", ".join(checkup.same) or (checkup.nearest.key if checkup.nearest else "")
    causes = counted(len(checkup.known_red), "cause")
    yield f"Known red on {where}: {causes}; add --config to see which of them affect a job"
    for cause in checkup.known_red[:SHOWN]:
        yield f"  {counted(len(cause.cells), 'cell')}: {cause.title}, e.g. {cause.cells[0].case}"
    if len(checkup.known_red) > SHOWN:
        yield f"  and {counted(len(checkup.known_red) - SHOWN, 'cause')} more"


def comparisons(moves: Mapping[str, str], versions: Mapping[str, str]) -> Iterator[str]:
    """Yield the commands that list what the moves of packages change in their API."""
    for name, version in moves.items():
        if name in PACKAGES and name in versions:
            yield f"`ftmatrix map changes {name} {versions[name]} {version}`"


def change_lines(checkup: Checkup) -> Iterator[str]:
    if checkup.repair is not None:
        yield from repair_lines(checkup.repair, "Change")
    if checkup.alternative is not None:
        yield from repair_lines(checkup.alternative, f"Alternative that drops {checkup.alternative.given_up}")
    if checkup.pins is not None:
        pins = " ".join(f'"{name}=={version}"' for name, version in checkup.pins.moves.items())
        yield f"Nearest set on which {green_words(checkup.pins)}, {checkup.pins.column.key}: pip install {pins}"
        python = f"Python {checkup.pins.column.python}"
        shown = f"{shown_on(checkup.pins.hardware)} by {checkup.pins.proof} (pass)"
        yield f"  {shown}, with {python}{without(checkup.pins.rest)}"
        yield from (f"  this changes a default: {each}" for each in checkup.changed_defaults)
        if checkup.changed_defaults:
            yield f"  all changed defaults: {', '.join(comparisons(checkup.pins.moves, checkup.installed.versions))}"
        if checkup.pins.settings is not None:
            yield from repair_lines(checkup.pins.settings, "  and change")
    if (
        checkup.problems
        and checkup.job
        and checkup.job.options
        and not (checkup.repair or checkup.alternative or checkup.pins)
    ):
        yield "No measured change of settings or versions makes it green."


def green_words(pins: VersionMove) -> str:
    """Name the form of the job that the proving cell shows as green."""
    if pins.plainest:
        return f"the plainest use ({pins.plainest}) is green"
    what = "a simpler form of it" if pins.rest else "it"
    return f"{what} is green with a change of settings" if pins.settings else f"{what} is green"


def shown_on(hardware: str) -> str:
    return f"shown {on_words(hardware)}".rstrip()


def without(rest: Iterable[str]) -> str:
    """Name the settings of the job that the proving case lacks."""
    several = ", ".join(rest)
    return f", a simpler form without {several}" if several else ""


def repair_lines(repair: Repair, verb: str) -> Iterator[str]:
    for config, text in repair.texts.items():
        for key, old, new in changed(config.values, configs.parse(text, config.path).values):
            yield f"{verb}: {config.path.name}: {key}: {shown(old)} -> {shown(new)}"
    if not repair.texts:
        yield f"{verb}, in code: {', '.join(in_code(name, value) for name, value in repair.changes.items())}"
        yield "  none of these files has a key for this, so --write cannot apply it"
    if not verb.startswith(" "):
        proof = repair.proof.outcome
        yield f"  {shown_on(proof.hardware)} by {proof.cell} (pass){without(repair.rest)}"


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key) and not isinstance(old.get(key, new.get(key)), dict):
            yield key, old.get(key), new.get(key)


def shown(value: Any) -> str:
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def summary(checkup: Checkup) -> str:
    device = device_words(checkup.device)
    if checkup.problems:
        return f"{counted(len(checkup.problems), 'problem')} found, according to results on {device}."
    if checkup.status is JobStatus.GREEN and checkup.greens:
        return f"No known failures, as shown by {checkup.greens[0].outcome.cell} (pass), on {device}."
    if checkup.status is JobStatus.GREEN:
        return "No known failure that affects every job."
    known = "No certain failures" if checkup.possible else "No known failures"
    if checkup.greens:
        first = checkup.greens[0]
        shown_by = f"{WORDS[str(first.stated['flow'])]} is green, as shown by {first.outcome.cell} (pass), on {device}"
        return f"{known}; {shown_by}. Not everything that this job states or does was measured."
    if checkup.job is not None and checkup.job.purpose:
        return "Nothing to judge: these files describe no training."
    return f"{known}, but this combination is untested."


def written_lines(checkup: Checkup, written: Iterable[Path], *, write: bool) -> Iterator[str]:
    """Yield the files that ``--write`` changed, or a hint to use it; the lines before these show the change."""
    if not write:
        if checkup.chosen() is not None:
            yield "Add --write to apply the change."
        elif checkup.chosen(give_up=True) is not None:
            yield "Add --write --give-up to apply the alternative."
        return
    several = tuple(written)
    yield from (f"Wrote {path}" for path in several)
    if not several and checkup.problems:
        yield "Nothing was written: no change of these files is verified with these versions."


def document(checkup: Checkup, written: Iterable[Path] = ()) -> dict[str, Any]:
    """Return the checkup as JSON. ``standing`` is the status of the job, or of the environment if there is no job."""
    job = checkup.job
    return {
        "schema": SCHEMA,
        "standing": checkup.status.value,
        "device": checkup.device,
        "environment": {
            "where": checkup.installed.source or str(checkup.installed.where),
            "python": checkup.installed.python,
            "versions": dict(checkup.installed.versions),
            "missing": list(checkup.installed.missing),
            "not_pinned": list(checkup.installed.unpinned),
            "notes": list(checkup.installed.notes),
            "sets": list(checkup.same),
            "measured_with": list(checkup.differences),
            "nearest": checkup.nearest.key if checkup.nearest else None,
            "measured_on": [each._asdict() for each in checkup.places],
        },
        "job": {
            "files": {str(each.path): each.dialect.name for each in job.configs},
            "options": job.options.stated if job.options else None,
            "purpose": job.purpose or "training",
            "notes": list(job.notes),
            "not_measured_at_all": list(job.forcing),
            "not_measured": list(job.not_judged),
            "not_looked_at": {name: list(keys) for name, keys in job.unread.items()},
        }
        if job
        else None,
        "problems": list(map(problem_document, checkup.problems)),
        "possible": list(map(problem_document, checkup.possible)),
        "notes": [{"id": each.finding.id, "what": each.finding.title} for each in checkup.notes],
        "in_code": [each.finding.id for each in checkup.in_code],
        "used_later": list(checkup.used_later),
        "changed_defaults": list(checkup.changed_defaults),
        "green": [each.outcome.cell for each in checkup.greens],
        "unknown": list(checkup.unknown),
        "change": repair_document(checkup.repair),
        "alternative": repair_document(checkup.alternative),
        "versions": pins_document(checkup.pins),
        "known_red": [
            {"cause": each.title, "cells": len(each.cells), "example": each.cells[0].cell} for each in checkup.known_red
        ],
        "written": [str(path) for path in written],
    }


def problem_document(each: CheckupProblem) -> dict[str, Any]:
    return {
        "what": each.what,
        "why": each.why,
        "links": list(each.links),
        "shown_by": each.shown_by,
        "inferred_from": each.inferred,
        "part": each.flow,
        "finding": each.finding,
        "hardware": each.hardware,
    }


def repair_document(repair: Repair | None) -> dict[str, Any] | None:
    if repair is None:
        return None
    return {
        "options": dict(repair.changes),
        "gives_up": repair.given_up,
        "shown_by": repair.proof.outcome.cell,
        "hardware": repair.proof.outcome.hardware,
        "not_shown": list(repair.rest),
        "files": {
            str(config.path): [
                {"key": key, "old": old, "new": new}
                for key, old, new in changed(config.values, configs.parse(text, config.path).values)
            ]
            for config, text in repair.texts.items()
        },
    }


def pins_document(pins: VersionMove | None) -> dict[str, Any] | None:
    if pins is None:
        return None
    return {
        "set": pins.column.key,
        "python": pins.column.python,
        "pins": dict(pins.moves),
        "shown_by": pins.proof,
        "hardware": pins.hardware,
        "torch": pins.column.pins["torch"],
        "not_shown": list(pins.rest),
        "plainest_use": pins.plainest,
        "change": repair_document(pins.settings),
    }
