"""The data of *My stack*: the status of every measured job on every set, so that the browser can combine them.

A job with several tasks works on a set if each task does, and no two of them need contradicting settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reports.answers.devices.nearness import near
from reports.answers.judgement.known_errors import MeasuredErrors
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.run.outcome import SetRecord
    from reports.answers.support.support import SetSupport
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
USUAL: Final = {"method": "lora", "quant": "nf4", "strategy": "fsdp2"}


def stack_data(
    published: PublishedData,
    features: Iterable[Feature],
    problems: Iterable[ProblemPage],
    locks: frozenset[str],
) -> dict[str, Any]:
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
                    device: {one.set: set_status(one) for one in support.sets}
                    for device, support in each.support.items()
                },
            }
            for each in jobs
        ],
        "sets": {
            device: [set_data(record, published, device, locks) for record in reversed(grid.sets)]
            for device, grid in published.grids.items()
        },
        "errors": errors(published, problems),
    }


def choices(jobs: Iterable[Feature], name: str) -> list[str]:
    return sorted({each.stated[name] for each in jobs if name in each.stated})


def set_status(support: SetSupport) -> list[Any]:
    """Return status, settings, and the cells that show it or the reason why it is unknown."""
    return [support.status.value, support.settings, list(support.cells) or support.reason]


def set_data(record: SetRecord, published: PublishedData, device: str, locks: frozenset[str]) -> dict[str, Any]:
    """Return a set with its pins, and the sets of other devices that have its versions, or all but torch."""
    others = [
        [other, column.key, nearness.value]
        for other, grid in published.grids.items()
        if other != device
        for column in grid.sets
        if (nearness := near(record, column)) is not None
    ]
    return {
        "key": record.key,
        "date": record.as_of,
        "python": record.python,
        "pins": record.pins,
        "lock": f"download/locks/{file_name(record.key)}.txt" if record.key in locks else "",
        "near": others,
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
            "package": each.row["package"],
            "versions": each.row["versions"],
            "measured": {str(v): red for v, red in measured.by_version(rows[each.id]).items()},
            "when": each.row["when"],
        }
        for each in problems
        if each.is_finding and each.is_bug and each.id in rows
    ]
