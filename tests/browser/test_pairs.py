"""The page of the pairs: an answer for two releases, by select, by mouse and by address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Visit

BROKEN = "#packages=pairs-peft-transformers&row=0.17.1&column=5.1.0"


def opened(visit: Visit, state: str = "") -> Page:
    page = visit.open(f"pairs.html{state}")
    page.wait_for_selector('#grid[aria-busy="false"]')
    return page


def test_an_address_shows_two_releases_that_break_with_the_name_and_the_proof(visit: Visit) -> None:
    answer = opened(visit, BROKEN).locator("#together")
    expect(answer).to_contain_text("peft 0.17.1 with transformers 5.1.0: breaks at import")
    expect(answer).to_contain_text("HybridCache")
    expect(answer).to_contain_text(re.compile("measured with Python|read from the releases, not run"))


def test_another_release_by_select_changes_the_answer_and_the_address(visit: Visit) -> None:
    page = opened(visit, BROKEN)
    page.get_by_label("transformers", exact=True).select_option("4.57.6")
    expect(page.locator("#together strong")).to_contain_text("with transformers 4.57.6")
    expect(page).to_have_url(re.compile(r"column=4\.57\.6"))


def test_a_square_is_chosen_by_mouse(visit: Visit) -> None:
    page = opened(visit, BROKEN)
    square = page.locator('#grid td[title^="peft 0.17.1 with transformers 4.50"]')
    square.click()
    expect(page.locator("#together strong")).to_have_text(square.get_attribute("title") or "")


def test_the_grid_has_a_square_with_words_for_every_two_releases(visit: Visit) -> None:
    page = opened(visit, "#packages=pairs-accelerate-bitsandbytes")
    rows, columns = page.locator("#row option").count(), page.locator("#column option").count()
    assert page.locator("#grid td[data-row]").count() == rows * columns
    assert page.locator("#grid td[data-row]").first.get_attribute("aria-label") in {"imports", "not measured"}


def test_only_the_data_of_the_chosen_packages_are_loaded(visit: Visit) -> None:
    page = opened(visit, BROKEN)
    count = "document.querySelectorAll('script[src*=\"data/pairs-\"]').length"
    assert page.evaluate(count) == 1
    page.get_by_label("Packages").select_option("pairs-trl-peft")
    expect(page.locator("#together strong")).to_contain_text("trl")
    assert page.evaluate(count) == 2


def test_a_pair_that_no_longer_exists_shows_the_first(visit: Visit) -> None:
    expect(opened(visit, "#packages=gone&row=1&column=2").locator("#together strong")).to_contain_text("with")
