"""The page of a case shows the loss, the gradient norm and the logs of the selected cell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from cases.space.verdict import Verdict
from matrix.run.outcome import CheckRecord, RunRecord
from matrix.run.store import Store
from reports.site.build import build
from tests.browser.conftest import DESKTOP, PHONE, visiting
from tests.browser.made_up_results import NOON, a_set, an_outcome

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import Visit

CASE: Final = "train-made_up-ddp-fp32"
SETS: Final = 13
STEPS: Final = 20
LOG: Final = "\n".join(f"{{'loss': {5 - step / 10}, 'step': {step}}}" for step in range(200))
SHAPES: Final = """each => [...each.children].map((part) =>
  [part.tagName, ...[...part.attributes].map(({ name, value }) => `${name}=${value}`).sort()].join(" "))"""
LEAVES: Final = CheckRecord(name="loss", value=0.4, op="<=", bound=0.01, ok=False)


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a run with 13 sets, of which the newest and one other are wrong, and every third one keeps a log."""
    folder = tmp_path_factory.mktemp("charts")
    record = RunRecord(
        harness="0", code="0", started=NOON, device="cpu", request={}, planned=(), hardware="cpu: made up x 2"
    )
    store = Store.create(folder / "run", record)
    (folder / "run" / "logs").mkdir()
    (folder / "run" / "logs" / "rank-0.log").write_text(LOG)
    for number in range(SETS):
        column, wrong = a_set(number), number in (4, SETS - 1)
        twin = tuple(5.0 - step / 10 for step in range(STEPS))
        found = tuple(value + (step > 7) * 0.05 * step for step, value in enumerate(twin)) if wrong else twin
        norm = tuple(1 / (step + 1) for step in range(STEPS))
        series = {"loss": found, "twin loss": twin, "gradient norm": norm, "twin gradient norm": norm}
        store.note(column)
        store.append(
            an_outcome(CASE, column.key, number + 1).model_copy(
                update={
                    "series": series,
                    "verdict": Verdict.WRONG if wrong else Verdict.PASS,
                    "checks": (LEAVES,) if wrong else (),
                    "evidence": {"rank 0 log": "logs/rank-0.log"} if number % 3 == 0 else {},
                }
            )
        )
    store.close()
    build(folder / "run", folder / "site")
    return folder / "site"


def opened(visit: Visit, number: int) -> Page:
    page = visit.open(f"case/{CASE}.html#set={a_set(number).key}&on=cpu")
    expect(page.locator("#selected")).to_be_visible()
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_selected_cell_has_its_charts(chromium: Browser, charts: Path, size: tuple[int, int], scheme: str) -> None:
    with visiting(chromium, charts, size=size, scheme=scheme) as visit:
        page = opened(visit, 3)
        expect(page.locator("#cell svg")).to_have_count(2)
        expect(page.locator("#cell figcaption").first).to_contain_text("Loss: 5, 4.9, 4.8 … 3.1")
        page.locator("#cell").get_by_text("As numbers").click()
        assert page.locator("#cell tbody tr").count() == STEPS
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert visit.violations() == []


def test_a_cell_that_the_page_draws_has_its_charts_once(chromium: Browser, charts: Path) -> None:
    with visiting(chromium, charts) as visit:
        page = opened(visit, 4)
        expect(page.locator("#cell svg")).to_have_count(0)
        expect(page.locator("#cell")).to_contain_text("draws its loss and gradient norm below")
        wrong = page.locator("section", has=page.get_by_role("heading", name=f"{a_set(4).key}, CPU")).locator("svg")
        expect(wrong).to_have_count(2)
        assert "leaves the twin's at step 9" in (wrong.first.get_attribute("aria-label") or "")


def test_the_script_draws_a_chart_as_the_page_does(chromium: Browser, charts: Path) -> None:
    """Both have the same coordinates: the curves of all green cells are equal."""
    with visiting(chromium, charts) as visit:
        norm = opened(visit, 3).locator("#cell svg").nth(1).evaluate(SHAPES)
        assert norm == visit.page.locator("section .charts svg").nth(1).evaluate(SHAPES)


def test_the_end_of_a_log_is_shown_on_demand(chromium: Browser, charts: Path) -> None:
    with visiting(chromium, charts) as visit:
        page = opened(visit, 3)
        page.get_by_text("End of the log files").click()
        expect(page.locator("#log-0")).to_contain_text("'step': 199")
        expect(opened(visit, 4).get_by_text("End of the log files")).to_have_count(0)


def test_a_red_cell_without_a_log_says_so(chromium: Browser, charts: Path) -> None:
    with visiting(chromium, charts) as visit:
        expect(opened(visit, 4).get_by_text("The results keep no log of this cell.")).to_be_visible()
        expect(opened(visit, 5).get_by_text("keep no log")).to_have_count(0)


def test_a_published_red_cell_has_the_end_of_its_log(visit: Visit) -> None:
    page = visit.open("case/train-lora-fsdp1-bf16.html#set=2026-11&on=cpu")
    page.get_by_text("End of the log files").click()
    expect(page.locator("#log-0")).to_contain_text("Must flatten tensors with uniform dtype")


def test_the_matrix_leads_to_what_each_gpu_column_rests_on(visit: Visit) -> None:
    page = visit.matrix()
    page.get_by_role("link", name="What the GPU columns rest on").click()
    newest = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="2026-09", exact=True))
    for words in ("2.14.0", "own lock", "NVIDIA H100 80GB HBM3 x 2", "580.159.04", "13.0", "2.30.7", "2026-11-25"):
        expect(newest).to_contain_text(words)
    expect(newest.get_by_role("cell", name=re.compile("^[0-9a-f]{12}$"))).to_be_visible()
    older = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="2024-09", exact=True))
    expect(older).to_contain_text("not recorded")
    assert visit.violations() == []
    newest.get_by_role("link").click()
    expect(page.locator("#summary")).to_contain_text("case")
