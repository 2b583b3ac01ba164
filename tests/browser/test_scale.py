"""The time and the memory to use the pages of 100,000 made-up cells, and the first paint of the published ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from playwright.sync_api import expect

from tests.browser.conftest import visiting
from tests.browser.large_site import SETS
from tests.browser.meter import Meter

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.large_site import LargeSite

# Of the page's main thread, in seconds of a processor: about three times what an idle machine takes.
HOME, MATRIX, FILTER = 0.25, 0.4, 0.2
HEAP: Final = 60e6  # bytes; it takes 5
FIRST_PAINT: Final = 500  # milliseconds, of the quickest of three visits
# Filters that take several values get a list.
FILTERS: Final[tuple[tuple[str, str | list[str]], ...]] = (
    *(("verdict", ["red"]), ("verdict", ["fail"]), ("verdict", ["pass", "skip", "differs"]), ("verdict", [])),
    *(("device", ["cpu"]), ("device", []), ("sets", ""), ("sets", "all"), ("strategy", ["ddp", "fsdp1"])),
    *(("strategy", []), ("version", ["torch==2.50.0", "torch==2.51.0", "peft==0.50.0", "peft==0.51.0"])),
    *(("version", []), ("q", "lora ddp"), ("q", "made_up_77"), ("q", "torch 2.8"), ("q", "-made_up_7 is:red")),
    *(("q", "is:unexplained -torch==2.8"), ("q", "-is:different,fail"), ("q", "")),
)
SET: Final = """async ([name, value]) => {
  const fields = [...document.querySelectorAll(`#filters [name=${name}]`)];
  for (const field of fields) {
    if (field.type === "checkbox") field.checked = value.includes(field.value);
    else field.value = value;
  }
  fields[0].dispatchEvent(new Event("input", { bubbles: true }));
  if (name === "q") await new Promise((done) => setTimeout(done, 140)); // the page waits for the end of a word
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}"""
PAINTED: Final = """() => new Promise((done) => new PerformanceObserver((list) => {
  const first = list.getEntriesByName("first-contentful-paint")[0];
  if (first) done(first.startTime);
}).observe({ type: "paint", buffered: true }))"""


def test_the_home_page_and_the_matrix_open_quickly(chromium: Browser, large: LargeSite) -> None:
    with visiting(chromium, large.folder) as visit:
        meter = Meter(visit.page)
        assert meter.seconds(lambda: visit.open("index.html")) < HOME
        assert meter.seconds(lambda: visit.matrix("#sets=all")) < MATRIX
        assert visit.page.locator("#grid .square").count() < 2000  # of 100,000
        assert meter.read("JSHeapUsedSize") < HEAP


def test_every_filter_is_quick(chromium: Browser, large: LargeSite) -> None:
    with visiting(chromium, large.folder) as visit:
        page, slow = visit.matrix("#sets=all"), {}
        meter = Meter(page)
        for name, value in FILTERS:
            took = meter.seconds(lambda name=name, value=value: page.evaluate(SET, [name, value]))  # type: ignore[misc]
            if took > FILTER:
                slow[f"{name}={value}"] = took
        assert slow == {}


def test_every_cell_can_be_reached(chromium: Browser, large: LargeSite) -> None:
    """Only the cells in view are drawn, also sideways; the focus stays visible and is never lost."""
    with visiting(chromium, large.folder) as visit:
        page = visit.matrix("#sets=all&verdict=red")
        page.locator('#grid [tabindex="0"]').focus()
        for key, column in (
            ("ArrowDown", 0),
            ("End", SETS),
            ("Home", 0),
            ("Control+End", SETS),
            ("ArrowLeft", SETS - 1),
        ):
            page.keyboard.press(key)
            assert page.evaluate("Number(document.activeElement.closest('[data-column]').dataset.column)") == column
            box, grid = page.locator(":focus").bounding_box(), page.locator("#grid").bounding_box()
            assert box is not None
            assert grid is not None
            assert grid["x"] <= box["x"] <= box["x"] + box["width"] <= grid["x"] + grid["width"]
        label = page.locator(":focus").get_attribute("aria-label") or ""
        page.locator("#grid").evaluate("each => each.scrollTo(0, 0)")
        expect(page.locator("#grid .col").first).to_have_attribute("data-column", "1")
        assert page.evaluate("document.activeElement.closest('#grid') !== null")
        assert label.startswith("2030-02:")


def test_the_first_paint_of_the_published_data_is_quick(chromium: Browser, site: Path) -> None:
    def painted(path: str) -> float:
        with visiting(chromium, site) as visit:
            visit.open(path)
            return float(visit.page.evaluate(PAINTED))

    for path in ("index.html", "matrix.html", "case/train-lora-fsdp1-bf16.html", "feature/qlora-fsdp2.html"):
        assert min(painted(path) for _ in range(3)) < FIRST_PAINT
