"""What changed between neighbouring version sets: the comparison of ``ftmatrix diff``, and any other two by choice."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from reports.answers.diff import compare, sides
from reports.answers.diff.changes import ChangeKind
from reports.site.names import device_name
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.answers.diff.changes import ResultDiff
    from reports.site.published_data import PublishedData
    from reports.site.writer import SiteWriter

PAIRS: Final = 8  # of each device, the newest ones; the page compares any two sets, too
SHOWN: Final = (ChangeKind.REGRESSED, ChangeKind.FIXED, ChangeKind.OTHER_REASON, ChangeKind.FLAKY)
COUNTED: Final = (*SHOWN, ChangeKind.SAME_REASON, ChangeKind.GREEN, ChangeKind.UNKNOWN, ChangeKind.NEW, ChangeKind.GONE)


@dataclass(frozen=True, kw_only=True)
class ChangePage:
    """The comparison of two sets on one device."""

    device: str
    base: str
    new: str
    diff: ResultDiff

    @property
    def path(self) -> str:
        return f"changes/{file_name(f'{self.device}-{self.base}-to-{self.new}')}.html"

    @property
    def counts(self) -> list[tuple[str, int]]:
        return [(kind.value, self.diff.counts[kind]) for kind in COUNTED]


def pages(published: PublishedData) -> tuple[ChangePage, ...]:
    """Return the comparisons of neighbouring sets with many cells, the newest first.

    Raises:
        UserError: a result cannot be read.
    """
    found = []
    for device in published.answers:
        main = [column.sets[device].key for column in published.columns if column.is_main and device in column.sets]
        of_device = (each for each in published.runs if each.device == device)
        grids = [each.grid() for each in sorted(of_device, key=lambda each: each.record.started)]
        for base, new in list(pairwise(main))[-PAIRS:]:
            both = sides.of_grids(base, new, grids, published.folder, device)
            diff = compare.compare(both.base, both.new, both.pairs)
            found.append(ChangePage(device=device, base=base, new=new, diff=diff))
    return tuple(reversed(found))


def write(site: SiteWriter, changes: Sequence[ChangePage], published: PublishedData) -> None:
    site.page(
        "changes.html",
        "changes.html.j2",
        changes=changes,
        kinds=[kind.value for kind in SHOWN],
        devices=list(published.grids),
        device_name=device_name,
    )
    for each in changes:
        site.page(
            each.path,
            "change.html.j2",
            change=each,
            shown=SHOWN,
            device_name=device_name,
            commands=f"ftmatrix diff {each.base} {each.new} --device {each.device}",
        )
