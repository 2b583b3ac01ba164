"""Measures the site of 100,000 made-up cells: ``nox -s scale``.

It prints wall time, processor time and memory to write the site, and wall times of Chromium to use it, each with what
is allowed and the load average of the machine. It exits with 1 if a figure is over its limit.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playwright.sync_api import sync_playwright

from tests.browser import large_site
from tests.browser.conftest import CHROMIUM, DESKTOP
from tests.browser.large_site import CASES, SETS
from tests.browser.meter import Meter
from tests.browser.test_scale import FILTERS, SET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

VISITS: Final = 3
PAUSE_S: Final = 0.14  # that a test waits after a word, in which the page waits for further letters


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured value: the slowest of several visits, and what is allowed."""

    name: str
    value: float
    limit: float
    unit: str

    def __str__(self) -> str:
        verdict = "" if self.value < self.limit else "  OVER"
        return f"{self.name:<52} {self.value:>8.2f} {self.unit:<4} (limit {self.limit:g}){verdict}"


def written(site: large_site.LargeSite) -> Iterator[Figure]:
    yield Figure(name="write the site, wall time", value=site.wall_seconds, limit=60, unit="s")
    yield Figure(name="write the site, processor time", value=site.seconds, limit=60, unit="s")
    yield Figure(name="write the site, memory", value=site.memory_mib, limit=1000, unit="MiB")


def used(browser: Browser, site: Path) -> Iterator[Figure]:
    """Yield the figures of the pages: of several visits in fresh contexts, the slowest counts."""
    visits = [visit(browser, site) for _ in range(VISITS)]
    for name, (_, limit, unit) in visits[0].items():
        yield Figure(name=name, value=max(each[name][0] for each in visits), limit=limit, unit=unit)


def visit(browser: Browser, site: Path) -> dict[str, tuple[float, float, str]]:
    """Return value, limit and unit by the name of the figure."""
    context = browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
    page = context.new_page()
    meter = Meter(page)
    found = {"home page": (seconds(lambda: page.goto(f"{site.as_uri()}/index.html")), 1.0, "s")}
    found["matrix, until it is usable"] = (seconds(lambda: open_matrix(page, site)), 2.0, "s")
    for name, value in FILTERS:
        took = seconds(lambda name=name, value=value: page.evaluate(SET, [name, value]))  # type: ignore[misc]
        words = value if isinstance(value, str) else ",".join(value)
        found[f"filter {name}={words}"[:52]] = ((took - PAUSE_S * (name == "q")) * 1000, 200.0, "ms")
    found["heap after all filters"] = (meter.read("JSHeapUsedSize") / 1e6, 300.0, "MB")
    context.close()
    return found


def open_matrix(page: Page, site: Path) -> None:
    page.goto(f"{site.as_uri()}/matrix.html#sets=all")
    page.wait_for_selector('#grid[aria-busy="false"]')


def seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def load() -> str:
    return "load average {:.2f} {:.2f} {:.2f}".format(*os.getloadavg())


def main(folder: Path) -> int:
    print(f"{CASES * SETS:,} cells, {os.cpu_count()} cores, {load()} before")
    large_site.write(folder)
    site = large_site.read(folder)
    figures = [*written(site)]
    print(f"{load()} after writing", *figures, sep="\n", flush=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        print(f"Chromium {browser.version}, the slowest of {VISITS} visits")
        shown = [*used(browser, site.folder)]
        browser.close()
    print(*shown, f"{load()} at the end", sep="\n")
    return int(any(each.value >= each.limit for each in (*figures, *shown)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ftmatrix-scale-") as name:
        sys.exit(main(Path(name)))
