"""The loss and the gradient norm of a job beside those of its twin, as small charts that are drawn while rendering.

A chart is SVG without a style of its own: the style sheet of the site colours it, in light and in dark.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from cases.space.verdict import Verdict
from reports.site.names import device_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.run.outcome import Outcome

# The name of a series, of the same series of the twin, and of the check whose bound says how far they may be apart.
CURVES: Final = (("loss", "twin loss", "loss"), ("gradient norm", "twin gradient norm", "gradient scale"))
WIDTH, HEIGHT, MARGIN = 240, 110, 8  # units of the SVG
LISTED: Final = 6  # values of a series in a caption
MOST: Final = 6  # charted cells of one case: those whose curves part, and the newest


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One quantity of one cell at each step, and the first step at which it is too far from the twin's.

    ``parts_at`` counts from 1; it is 0 if the curves stay together, as those of a cell whose checks hold.
    """

    name: str
    found: tuple[float, ...]
    twin: tuple[float, ...]
    lowest: float
    highest: float
    parts_at: int

    @property
    def words(self) -> str:
        """The chart as a sentence, for screen readers and as its caption."""
        if not self.parts_at:
            return f"{self.name}: {listed(self.found)}; the twin's: {listed(self.twin)}"
        found, twin = self.found[self.parts_at - 1], self.twin[self.parts_at - 1]
        return f"{self.name}: leaves the twin's at step {self.parts_at}, with {found:.5g} instead of {twin:.5g}"

    @property
    def title(self) -> str:
        return self.name[0].upper() + self.name[1:]

    @property
    def width(self) -> int:
        return WIDTH

    @property
    def height(self) -> int:
        return HEIGHT

    def lines(self, values: Sequence[float]) -> list[str]:
        """Return a curve as points of polylines; it has a gap where a value is not finite."""
        parts: list[list[str]] = [[]]
        for place, value in enumerate(values):
            if math.isfinite(value):
                parts[-1].append(f"{self.across(place):.1f},{self.up(value):.1f}")
            elif parts[-1]:
                parts.append([])
        return [" ".join(each) for each in parts if each]

    def dots(self, values: Sequence[float]) -> list[tuple[str, str]]:
        return [
            (f"{self.across(place):.1f}", f"{self.up(value):.1f}")
            for place, value in enumerate(values)
            if math.isfinite(value)
        ]

    @property
    def data(self) -> dict[str, Any]:
        """The chart as texts and coordinates, for the script that draws the selected cell."""
        return {
            "words": self.words[0].upper() + self.words[1:],
            "size": [self.width, self.height],
            "found": self.lines(self.found),
            "twin": self.lines(self.twin),
            "dots": self.dots(self.found),
            "apart": f"{self.across(self.parts_at - 1):.1f}" if self.parts_at else "",
        }

    def across(self, place: int) -> float:
        return MARGIN + place * (WIDTH - 2 * MARGIN) / max(len(self.found) - 1, 1)

    def up(self, value: float) -> float:
        return HEIGHT - MARGIN - (value - self.lowest) / (self.highest - self.lowest) * (HEIGHT - 2 * MARGIN)


@dataclass(frozen=True, kw_only=True)
class ChartedCell:
    """The charts of a cell, and its numbers as rows of a table: the step, and each series."""

    device: str
    set: str
    verdict: Verdict
    charts: tuple[Chart, ...]

    @property
    def name(self) -> str:
        return f"{self.set}, {device_name(self.device)}"

    @property
    def heads(self) -> list[str]:
        return [head for each in self.charts for head in (each.title, f"Twin's {each.name}")]

    @property
    def rows(self) -> list[list[str]]:
        columns = [values for each in self.charts for values in (each.found, each.twin)]
        return [["" if value is None else f"{value:.7g}" for value in row] for row in zip_longest(*columns)]

    @property
    def data(self) -> dict[str, Any]:
        return {"charts": [each.data for each in self.charts], "heads": self.heads, "rows": self.rows}

    @property
    def part(self) -> bool:
        return any(each.parts_at for each in self.charts)


def charted(outcomes: Iterable[tuple[str, Outcome]]) -> list[ChartedCell]:
    """Return the cells of a case to draw: those that are wrong, then the newest of each device; at most ``MOST``.

    Outcomes come with their device, the oldest set first. Results of older versions have no series.
    """
    cells = [each for device, outcome in outcomes if (each := charted_cell(device, outcome)) is not None]
    newest = {each.device: each for each in cells}.values()
    wrong = [each for each in reversed(cells) if each.part or each.verdict is Verdict.WRONG]
    return list({(each.device, each.set): each for each in (*wrong, *newest)}.values())[:MOST]


def charted_cell(device: str, outcome: Outcome) -> ChartedCell | None:
    charts = tuple(charts_of(outcome))
    if not charts:
        return None
    return ChartedCell(device=device, set=outcome.set, verdict=outcome.verdict, charts=charts)


def charts_of(outcome: Outcome) -> Iterator[Chart]:
    missed = {each.name: each.bound for each in outcome.checks if not each.ok}
    for name, of_twin, check in CURVES:
        found, twin = outcome.series.get(name, ()), outcome.series.get(of_twin, ())
        if found and len(found) == len(twin):
            bound = missed.get(check)
            yield chart(name, found, twin, bound if isinstance(bound, float) else math.inf)


def chart(name: str, found: Sequence[float], twin: Sequence[float], bound: float) -> Chart:
    """Return a chart; ``bound`` is the greatest relative distance of a value from the twin's."""
    finite = [value for value in (*found, *twin) if math.isfinite(value)] or [0.0]
    lowest, highest = min(finite), max(finite)
    if highest - lowest <= abs(highest) * 1e-6:  # a flat curve belongs in the middle
        lowest, highest = lowest - max(abs(lowest), 1.0) / 2, highest + max(abs(highest), 1.0) / 2
    apart = (step for step, pair in enumerate(zip(found, twin, strict=True), start=1) if is_apart(*pair, bound=bound))
    return Chart(
        name=name, found=tuple(found), twin=tuple(twin), lowest=lowest, highest=highest, parts_at=next(apart, 0)
    )


def is_apart(found: float, twin: float, *, bound: float) -> bool:
    return not math.isfinite(found) or abs(found - twin) > bound * abs(twin)


def listed(values: Sequence[float]) -> str:
    """Return the values in words, of many the first and the last ones; the table of the page has all of them."""
    first, last = (values, ()) if len(values) <= LISTED else (values[: LISTED // 2], values[-1:])
    words = ", ".join(f"{value:.5g}" for value in first)
    return f"{words} … {last[0]:.5g}" if last else words
