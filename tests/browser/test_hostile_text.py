"""Text that tries to break a page is shown as text, on every page that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from reports.site.build import build
from reports.site.writer import file_name
from tests.browser.conftest import PHONE, visiting
from tests.browser.made_up_results import HOSTILE, MARKUP, RED_SHARE, a_set, an_outcome, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser

CASES = tuple(f"train-{text.replace('__', '_')}-{number}" for number, text in enumerate(HOSTILE))
PASTE: Final = """([field, text]) => {
  const place = document.querySelector(field);
  place.value = text;
  for (const name of ["input", "change"]) place.dispatchEvent(new Event(name, { bubbles: true }));
}"""


@pytest.fixture(scope="session")
def hostile(make_once: Callable[..., Path]) -> Path:
    """The site of red cells whose names and texts are hostile, one of them 10 MB long."""
    return make_once("hostile", write_hostile) / "site"


def write_hostile(folder: Path) -> None:
    column = a_set(0)
    outcomes = [an_outcome(case, column.key, 0, text=text) for case, text in zip(CASES, HOSTILE, strict=True)]
    outcomes.append(an_outcome("train-long", column.key, RED_SHARE, text="x" * 10_000_000))
    unknown = an_outcome("train-unknown", column.key, RED_SHARE)
    outcomes.append(unknown.model_copy(update={"options": {**unknown.options, "never_heard_of": MARKUP}}))
    write(folder / "results", tuple(outcomes), (column,))
    build(folder / "results", folder / "site")


@pytest.mark.parametrize("number", range(len(HOSTILE)))
@pytest.mark.parametrize("width", [1280, PHONE[0]])
def test_a_case_with_hostile_text_is_shown(chromium: Browser, hostile: Path, number: int, width: int) -> None:
    with visiting(chromium, hostile, size=(width, 800)) as visit:
        visit.page.on("dialog", lambda dialog: visit.problems.append(f"dialog: {dialog.message}"))
        page = visit.page
        page.goto((hostile / "case" / f"{file_name(CASES[number])}.html").as_uri() + "#set=2030-01&on=cpu")
        page.wait_for_selector("#selected")
        assert page.locator("img[onerror], script:not([src])").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert "made up" in page.locator("#cell").inner_text()
        assert "\u202e" not in page.content()


def test_the_matrix_and_the_causes_show_hostile_text(chromium: Browser, hostile: Path) -> None:
    with visiting(chromium, hostile) as visit:
        page = visit.matrix()
        page.locator("#unfold").click()
        assert page.locator(".case").count() == len(CASES) + 2
        page.locator(".square a").first.focus()
        visit.open("causes.html")
        assert page.locator("img, script:not([src])").count() == 0
        for name in ("index.html", "features.html", "changes.html", "data.html", "stack.html", "error.html"):
            visit.open(name)


def test_a_line_of_ten_megabytes_makes_no_large_page(hostile: Path) -> None:
    assert max(path.stat().st_size for path in hostile.rglob("*.html")) < 2_000_000
    assert max(path.stat().st_size for path in (hostile / "data").rglob("*.js")) < 2_000_000


@pytest.mark.parametrize(
    "text", [*HOSTILE, "\ud800 a lone surrogate \udfff", "x" * 10_000_000], ids=range(len(HOSTILE) + 2)
)
def test_pasted_text_is_shown_as_text_or_not_at_all(chromium: Browser, site: Path, text: str) -> None:
    """In every place that takes text: the explanation of a log, versions, filters, the search box and the address."""
    with visiting(chromium, site) as visit:
        visit.page.on("dialog", lambda dialog: visit.problems.append(f"dialog: {dialog.message}"))
        error = visit.open("error.html")
        error.evaluate(PASTE, ["#log", f"Traceback (most recent call last):\nValueError: {text}"])
        error.get_by_role("button", name="Explain").click()
        expect(error.locator("#answer h2")).to_be_visible()
        stack = visit.open("stack.html")
        stack.evaluate(PASTE, ["#freeze", f"torch==2.8.0\n{text}==1.0\npeft=={text}"])
        expect(stack.locator("#known h3").first).to_be_visible()
        short = text.replace("\x00", "")[:2000].encode("utf-8", "replace").decode()
        matrix = visit.matrix(f"#q={quote(short)}&verdict={quote(short)}&open={quote(short)}")
        expect(matrix.locator("#summary")).to_contain_text("case")
        home = visit.open("index.html")
        home.evaluate(PASTE, [".box", short])
        expect(home.get_by_role("option").first).to_be_visible()
        case = visit.open(f"case/train-lora-fsdp1-bf16.html#set={quote(short)}&on={quote(short)}")
        for page in (error, stack, matrix, home, case):
            assert page.locator("img[onerror], script:not([src])").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_set_with_a_hostile_name_is_shown(chromium: Browser, tmp_path: Path) -> None:
    column = a_set(0).model_copy(update={"key": f"2030-01+{MARKUP}", "why": MARKUP, "python": MARKUP})
    outcome = an_outcome("train-a", column.key, 0).model_copy(update={"hardware": f"cpu: {MARKUP}"})
    write(tmp_path / "results", (outcome,), (column,))
    build(tmp_path / "results", tmp_path / "site")
    with visiting(chromium, tmp_path / "site") as visit:
        visit.page.on("dialog", lambda dialog: visit.problems.append(f"dialog: {dialog.message}"))
        page = visit.matrix("#sets=all")
        page.locator(".square a").first.click()
        expect(page.locator("#selected")).to_contain_text("fail")
        for name in ("case/train-a.html", "stack.html", "changes.html", "data.html", "matrix.html"):
            assert visit.open(name).locator("img[onerror], script:not([src])").count() == 0
