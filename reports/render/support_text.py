"""Draws support statements as text for a terminal."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from reports.answers.support.status import GOOD, Standing
from reports.render.recommend_text import CAUTION
from reports.results.wording import trimmed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reports.answers.support.support import DeviceSupport, SetSupport, Support, SupportDocument
    from reports.answers.support.version_ranges import Stretch

LONGEST: Final = 160
BLAME: Final = (
    "Every set that ran a red version failed; the results do not show which package of these sets is at fault."
)
ASIDE: Final = "CPU results, which may not hold for a GPU:"


def lines(found: SupportDocument) -> list[str]:
    first, *others = found.devices
    asked = [f"Needed: {each}" for each in first.support[0].needs]
    return [*asked, "", *device_lines(first), *(line for each in others for line in ("", ASIDE, *device_lines(each)))]


def device_lines(of: DeviceSupport) -> list[str]:
    if not of.hardware:
        return [f"Unknown on {of.device}: there are no published results for {of.device}."]
    (support,) = of.support
    measured = f"Measured: {' to '.join(dict.fromkeys((of.first, of.last)))}, {'; '.join(of.hardware)}"
    told = [newest(support), "", *table(support), "", *blame(support), measured] if support.sets else [newest(support)]
    return [*told, *([CAUTION] if of.device == "cpu" else [])]


def newest(support: Support) -> str:
    if not support.sets:
        return "No published run has a case for this."
    good = [each for each in support.sets if each.standing in GOOD]
    if good:
        return f"Newest set: {good[-1].set}, {standing(good[-1])}"
    red = sum(each.standing is Standing.RED for each in support.sets)
    return f"Green on no published set: red on {red}, unknown on the others."


def standing(of: SetSupport | Stretch) -> str:
    return f"green with {of.settings}" if of.settings else of.standing.value


def table(support: Support) -> Iterator[str]:
    """Yield a row per package and version range; ranges without any attempt share the last row."""
    rows: list[tuple[str, str, str]] = []
    for package, stretches in support.packages.items():
        told = [
            (each.versions, words(each)) for each in stretches if each.standing is not Standing.UNKNOWN or each.reason
        ]
        rows += [(name, *row) for name, row in zip_longest([package], told or [("", "unknown")], fillvalue="")]
    rows.append(("other versions", "", "unknown"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    yield from (f"{name:{widths[0]}}  {versions:{widths[1]}}  {said}" for name, versions, said in rows)


def words(stretch: Stretch) -> str:
    if stretch.standing is Standing.UNKNOWN:
        return trimmed(f"unknown: {stretch.reason}", LONGEST)
    if stretch.inferred:
        return f"{standing(stretch)}: measured at {', '.join(stretch.measured)}; inferred between them"
    return f"{standing(stretch)}: measured ({trimmed(', '.join(stretch.sets), LONGEST)})"


def short(stretches: Iterable[Stretch]) -> str:
    """Return the support of a package in one line, for a table with a column per package."""
    told = [f"{standing(each)} {each.versions}" for each in stretches if each.standing is not Standing.UNKNOWN]
    return "; ".join(told) or Standing.UNKNOWN.value


def blame(support: Support) -> list[str]:
    """Return the packages that alone turn a red set green, or a note that no results show one."""
    if support.turns:
        return [
            f"{each.package} alone makes the difference: red at {each.red} ({each.red_set}), "
            f"green at {each.green} ({each.green_set})"
            for each in support.turns
        ]
    return [BLAME] if any(each.standing is Standing.RED for each in support.sets) else []
