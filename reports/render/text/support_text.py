"""Draws support statements as text for a terminal."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from reports.answers.support.status import GOOD, SupportStatus
from reports.render.text.pairs_text import pair_lines
from reports.render.text.question_text import question_lines
from reports.render.text.recommend_text import CAUTION
from reports.results.wording import trimmed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reports.answers.support.support import DeviceSupport, SetSupport, Support, SupportDocument
    from reports.answers.support.version_ranges import VersionRange

LONGEST: Final = 160
BLAME: Final = (
    "Every set that ran a red version failed; the results do not show which package of these sets is at fault."
)
CPU_RESULTS: Final = "CPU results, which may not hold for a GPU:"


def lines(document: SupportDocument) -> list[str]:
    head = question_lines(document.not_measured, document.notes, rest=bool(document.devices))
    together = ["These releases together:", *pair_lines(document.pairs)] if document.pairs else []
    if not document.devices:
        return [*head, *together]
    first, *others = document.devices
    request = [f"Needed: {each}" for each in first.support[0].needs]
    given = [f"Given: {', '.join(document.have)}"] if document.have else []
    return [
        *head,
        *request,
        *given,
        "",
        *device_lines(first, given=bool(given)),
        *(line for each in others for line in ("", CPU_RESULTS, *device_lines(each, given=bool(given)))),
        *together,
    ]


def device_lines(of: DeviceSupport, *, given: bool = False) -> list[str]:
    if not of.hardware:
        return [f"Unknown on {of.device}: there are no published results for {of.device}."]
    (support,) = of.support
    measured = f"Measured: {' to '.join(dict.fromkeys((of.first, of.last)))}, {'; '.join(of.hardware)}"
    rows = (
        [newest(support), "", *table(support), "", *blame(support), measured] if support.sets else [none(given=given)]
    )
    return [*rows, *([CAUTION] if of.device == "cpu" else [])]


def none(*, given: bool) -> str:
    return f"No published {'set with these versions' if given else 'run'} has a case for this."


def newest(support: Support) -> str:
    good = [each for each in support.sets if each.status in GOOD]
    if good:
        return f"Newest set: {good[-1].set}, {status(good[-1])}"
    red = sum(each.status is SupportStatus.RED for each in support.sets)
    return f"Green on no published set: red on {red}, unknown on the others."


def status(of: SetSupport | VersionRange) -> str:
    return f"green with {of.settings}" if of.settings else of.status.value


def table(support: Support) -> Iterator[str]:
    """Yield a row per package and version range; ranges without any attempt share the last row."""
    rows: list[tuple[str, str, str]] = []
    for package, version_ranges in support.packages.items():
        known = [
            (each.versions, words(each))
            for each in version_ranges
            if each.status is not SupportStatus.UNKNOWN or each.reason
        ]
        rows += [(name, *row) for name, row in zip_longest([package], known or [("", "unknown")], fillvalue="")]
    rows.append(("other versions", "", "unknown"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    yield from (f"{name:{widths[0]}}  {versions:{widths[1]}}  {status}" for name, versions, status in rows)


def words(version_range: VersionRange) -> str:
    if version_range.status is SupportStatus.UNKNOWN:
        return trimmed(f"unknown: {version_range.reason}", LONGEST)
    if version_range.inferred:
        return f"{status(version_range)}: measured at {', '.join(version_range.measured)}; inferred between them"
    return f"{status(version_range)}: measured ({trimmed(', '.join(version_range.sets), LONGEST)})"


def short(version_ranges: Iterable[VersionRange]) -> str:
    """Return the support of a package in one line, for a table with a column per package."""
    known = [f"{status(each)} {each.versions}" for each in version_ranges if each.status is not SupportStatus.UNKNOWN]
    return "; ".join(known) or SupportStatus.UNKNOWN.value


def blame(support: Support) -> list[str]:
    """Return the packages that alone turn a red set green, or a note that no results show one."""
    if support.moves:
        return [
            f"{each.package} alone makes the difference: red at {each.red} ({each.red_set}), "
            f"green at {each.green} ({each.green_set})"
            for each in support.moves
        ]
    return [BLAME] if any(each.status is SupportStatus.RED for each in support.sets) else []
