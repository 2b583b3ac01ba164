"""The data of *My stack*: the status of every measured job on every set, so that the browser can combine them.

A job with several tasks works on a set if each task does, and no two of them need contradicting settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matrix.keys import CellKey
from reports.answers.judgement.known_errors import MeasuredErrors
from reports.answers.support.query import parse
from reports.answers.support.status import CPU, GOOD, SupportIndex, SupportStatus, newest_first
from reports.answers.support.whole_job import facts_of
from reports.site.diagnosis.consequence_data import versions_data
from reports.site.feature_pages import contradictions
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from matrix.run.outcome import SetRecord
    from reports.answers.support.query import Query
    from reports.answers.support.status import GreenCase
    from reports.site.feature_pages import Feature
    from reports.site.problem_pages import ProblemPage
    from reports.site.published_data import PublishedData

TASKS: Final = (
    ("train", "train"),
    ("save_reload", "save and reload"),
    ("resume", "resume from a checkpoint"),
    ("merge", "merge"),
    ("merge_reload", "merge, save and reload"),
    ("generate", "generate"),
)
CHOICES: Final = ("method", "quant", "strategy")
MOST_ALTERNATIVES: Final = 8
USUAL: Final = {"method": "lora", "quant": "nf4", "strategy": "fsdp2"}


def stack_data(
    published: PublishedData,
    features: Iterable[Feature],
    problems: Iterable[ProblemPage],
    locks: frozenset[str],
) -> dict[str, Any]:
    alternatives = Alternatives(published)
    jobs = [each for each in features if not each.job and len(each.needs) == 1]
    return {
        "devices": list(published.grids),
        "tasks": [list(each) for each in TASKS],
        "choices": {name: choices(jobs, name) for name in CHOICES},
        "usual": USUAL,
        "jobs": [
            {
                "options": [each.stated.get(name, "") for name in ("flow", *CHOICES)],
                "file": each.file,
                "sets": {
                    device: dict(statuses(each, device, alternatives.of(each, device), published))
                    for device in each.support
                },
            }
            for each in jobs
        ],
        "sets": {
            device: [set_data(record, locks) for record in newest_first(grid.sets)]
            for device, grid in published.grids.items()
        },
        "errors": errors(published, problems),
    }


def choices(jobs: Iterable[Feature], name: str) -> list[str]:
    return sorted({each.stated[name] for each in jobs if name in each.stated})


def statuses(
    feature: Feature, device: str, alternatives: Mapping[str, list[list[str]]], published: PublishedData
) -> Iterator[tuple[str, list[Any]]]:
    """Yield each set with its status, settings, the cells that show it or why it is unknown, and two lists.

    The first has other settings with their cells, the second what other devices show against any of these cells.
    """
    for each in feature.support[device].sets:
        other = alternatives.get(each.set, [])
        shown = each.model_copy(update={"cells": (*each.cells, *(cell for _, cell in other))})
        against = list(contradictions(feature, device, shown, published)) if each.status in GOOD else []
        yield each.set, [each.status.value, each.settings, list(each.cells) or each.reason, other, against]


class Alternatives:
    """Finds all settings with which a task is green: two tasks of one job may need the same, which is not the first."""

    def __init__(self, published: PublishedData) -> None:
        known = MeasuredErrors(published.answers[CPU]) if CPU in published.answers else None
        self.main = {
            (device, column.sets[device].key)
            for column in published.columns
            if column.is_main
            for device in column.sets
        }
        self.records = published.records
        self.known = known
        self.indexes = {
            device: SupportIndex(grid, known=known, device=device) for device, grid in published.answers.items()
        }

    def of(self, feature: Feature, device: str) -> dict[str, list[list[str]]]:
        """Return settings and cell of the green cases of each set with many cells that needs a setting."""
        query = parse(feature.needs[0])
        return {
            each.set: [
                [green.words, str(CellKey(each.set, green.case))]
                for green in each.greens[:MOST_ALTERNATIVES]
                if self.is_sound(query, green, each.set, device)
            ]
            for each in self.indexes[device].statuses(query)
            if each.status is SupportStatus.SETTING and len(each.greens) > 1 and (device, each.set) in self.main
        }

    def is_sound(self, query: Query, green: GreenCase, key: str, device: str) -> bool:
        """Tell if a job with the settings of a green case meets no known error."""
        if self.known is None:
            return True
        pins = self.records[device, key].pins
        met = self.known.met_by(facts_of(query, green.settings, device=device), pins)
        return not any(each.certain and each.is_failure for each in met)


def set_data(record: SetRecord, locks: frozenset[str]) -> dict[str, Any]:
    return {
        "key": record.key,
        "date": record.as_of,
        "python": record.python,
        "pins": record.pins,
        "lock": f"download/locks/{file_name(record.key)}.txt" if record.key in locks else "",
    }


def errors(published: PublishedData, problems: Iterable[ProblemPage]) -> list[dict[str, Any]]:
    """Return the findings with the versions that have them, stated or measured, and the jobs that meet them."""
    grid = published.answers.get("cpu", next(iter(published.answers.values())))
    measured = MeasuredErrors(grid)
    rows = {row.id: row for row in measured.rows}
    return [
        {
            "file": each.path,
            "title": each.title,
            "silent": each.silent,
            **versions_data(rows[each.id], measured),
            "when": each.row["when"],
        }
        for each in problems
        if each.is_finding and each.is_bug and each.id in rows
    ]
