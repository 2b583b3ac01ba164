"""Text that tries to break a page is shown as text, on every page that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reports.site.build import build
from reports.site.writer import file_name
from tests.browser.conftest import PHONE, visiting
from tests.browser.made_up_results import HOSTILE, MARKUP, RED_SHARE, a_set, an_outcome, write

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

CASES = tuple(f"train-{text.replace('__', '_')}-{number}" for number, text in enumerate(HOSTILE))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of red cells whose names and texts are hostile, one of them 10 MB long."""
    results, folder = tmp_path_factory.mktemp("hostile"), tmp_path_factory.mktemp("site")
    column = a_set(0)
    outcomes = [an_outcome(case, column.key, 0, text=text) for case, text in zip(CASES, HOSTILE, strict=True)]
    outcomes.append(an_outcome("train-long", column.key, RED_SHARE, text="x" * 10_000_000))
    unknown = an_outcome("train-unknown", column.key, RED_SHARE)
    outcomes.append(unknown.model_copy(update={"options": {**unknown.options, "never_heard_of": MARKUP}}))
    write(results, tuple(outcomes), (column,))
    build(results, folder)
    return folder


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
