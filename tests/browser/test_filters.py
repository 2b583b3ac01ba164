"""The filters of the matrix: several values, negation, questions about squares, and addresses that keep them all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import visiting
from tests.browser.hands import HANDS, Finger, Mouse

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import Visit

COUNT: Final = re.compile(r"^([\d,]+) cases? on ([\d,]+) version sets?: ([\d,]+) red")
NEGATIONS: Final = (
    *("-fsdp1", "not:fsdp1", "-quant=nf4", "-8-bit", "-reentrant", "NOT:dora", "\N{MINUS SIGN}qlora", "-sft"),
)
WORDS: Final = (
    *("red", "green", "pass", "wrong", "fail", "crash", "skip", "blocked", "lost", "unknown"),
    *("different", "differs", "unexplained", "wrong,hang"),
)
VERSIONS: Final = ("torch==2.8.0", "torch 2.8", "peft>=0.17")
VERDICTS: Final = "verdict=wrong&verdict=crash"
CASE: Final = "train-lora-fsdp1-bf16-autocast_adapter_dtype_false"
FOUND: Final = """async (text) => {
  const matrix = await ftm.load("matrix"), asked = ftm.query.parse(text), rows = await ftm.matching(matrix, asked);
  const every = matrix.columns.map((_, number) => number);
  return {
    cases: new ftm.Squares(matrix).rows(rows, every, matrix.devices, asked).length,
    sets: matrix.columns.filter((column) => ftm.isAskedColumn(column, asked)).length,
  };
}"""


def seen(page: Page) -> tuple[int, int, int]:
    """Return the numbers of cases, version sets and red cells that the page states."""
    found = COUNT.match(page.locator("#summary").inner_text())
    assert found is not None
    cases, sets, red = (int(each.replace(",", "")) for each in found.groups())
    return cases, sets, red


def chosen(page: Page, name: str) -> str:
    return page.locator(f'.pick[data-name="{name}"] .chosen').inner_text()


@pytest.mark.parametrize("hand", HANDS, ids=lambda hand: hand.__name__.lower())
def test_a_filter_takes_several_values(chromium: Browser, site: Path, hand: type[Mouse]) -> None:
    with visiting(chromium, site, size=hand.size, **hand.settings) as visit:
        page, user = visit.matrix(), hand(visit.page)
        user.activate(page.get_by_text("More filters"))
        user.pick("quant", "nf4")
        one = seen(page)[0]
        user.pick("quant", "int8")
        both = seen(page)[0]
        assert both > one > 0
        assert chosen(page, "quant") == "int8, nf4"
        user.pick("strategy", "ddp", "fsdp1", "fsdp2")
        assert chosen(page, "strategy") == "3 chosen"
        assert 0 < seen(page)[0] < both
        expect(page).to_have_url(re.compile(r"quant=int8&quant=nf4&strategy=ddp&strategy=fsdp1&strategy=fsdp2"))
        assert visit.violations() == []


@pytest.mark.parametrize(("hand", "scheme"), [(Mouse, "dark"), (Finger, "light")])
def test_unfolded_lists_fit_the_window_and_violate_no_rule(
    chromium: Browser, site: Path, hand: type[Mouse], scheme: str
) -> None:
    with visiting(chromium, site, size=hand.size, scheme=scheme, **hand.settings) as visit:
        page = visit.matrix()
        page.locator(".more-filters").evaluate("each => (each.open = true)")
        names = page.locator(".pick").evaluate_all("all => all.map((each) => each.dataset.name)")
        for name in names:
            hand(page).activate(page.locator(f'.pick[data-name="{name}"] > summary'))
            box = page.locator(f'.pick[data-name="{name}"] .choices').bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= hand.size[0]
            assert page.locator(".pick[open]").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert visit.violations() == []


def test_a_long_list_is_narrowed_by_typing(visit: Visit) -> None:
    page = visit.matrix()
    page.locator('.pick[data-name="version"] > summary').click()
    page.get_by_label("Narrow the list: Version").fill("peft 0.18")
    labels = page.locator('.pick[data-name="version"] label:visible')
    assert {text.strip()[:9] for text in labels.all_inner_texts()} == {"peft 0.18"}
    expect(page.locator('.pick[data-name="version"] legend:visible')).to_have_count(1)
    before = seen(page)
    labels.first.click()
    assert seen(page)[1] < before[1]


def test_versions_of_one_package_are_alternatives_and_packages_narrow(visit: Visit) -> None:
    one, both = sets(visit, "torch==2.8.0"), sets(visit, "torch==2.8.0", "torch==2.9.1")
    assert 0 < one < both
    assert 0 < sets(visit, "torch==2.8.0", "torch==2.9.1", "peft==0.17.1") < both


def sets(visit: Visit, *versions: str) -> int:
    visit.page.goto("about:blank")
    return seen(visit.matrix("#sets=all&" + "&".join(f"version={each}" for each in versions)))[1]


def test_a_former_address_with_one_value_of_each_filter_still_works(visit: Visit) -> None:
    page = visit.matrix("#q=lora&verdict=differs&device=cuda&version=torch%3D%3D2.8.0&strategy=ddp&sets=all")
    assert [chosen(page, name) for name in ("verdict", "device", "version", "strategy")] == [
        "CPU and GPU disagree",
        "GPU",
        "torch 2.8.0",
        "ddp",
    ]
    expect(page.get_by_label("Words, options")).to_have_value("lora")


def test_an_unknown_value_of_an_address_is_named_until_a_filter_changes(visit: Visit) -> None:
    page = visit.matrix("#verdict=purple&verdict=wrong")
    expect(page.locator("#summary")).to_contain_text("unknown: verdict=purple")
    assert chosen(page, "verdict") == "wrong"
    page.locator("#sets").select_option("all")
    expect(page.locator("#summary")).not_to_contain_text("unknown")


def test_clear_empties_every_filter(visit: Visit) -> None:
    page = visit.matrix("#q=lora&verdict=wrong&verdict=fail&device=cpu&quant=nf4")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".pick.active")).to_have_count(0)
    assert "#" not in page.url


def test_a_negated_word_leaves_out_what_the_word_finds(visit: Visit) -> None:
    words = [re.sub("^(?:-|\N{MINUS SIGN}|not:)", "", term, flags=re.IGNORECASE) for term in NEGATIONS]
    every, *counts = found(visit, ["", *words, *NEGATIONS])
    for term, word, left in zip(NEGATIONS, counts[: len(words)], counts[len(words) :], strict=True):
        assert 0 < word["cases"] < every["cases"], term
        assert left["cases"] == every["cases"] - word["cases"], term


def test_a_word_for_squares_and_its_negation_part_all_cases(visit: Visit) -> None:
    every, *counts = found(visit, ["", *(f"{sign}is:{word}" for word in WORDS for sign in ("", "-"))])
    for word, with_it, without in zip(WORDS, counts[::2], counts[1::2], strict=True):
        assert with_it["cases"] > 0, word
        assert with_it["cases"] + without["cases"] == every["cases"], word


def test_a_negated_version_leaves_out_its_sets(visit: Visit) -> None:
    every, *counts = found(visit, ["", *(f"{sign}{text}" for text in VERSIONS for sign in ("", "-"))])
    for text, with_it, without in zip(VERSIONS, counts[::2], counts[1::2], strict=True):
        assert min(with_it["sets"], without["sets"]) > 0, text
        assert with_it["sets"] + without["sets"] == every["sets"], text


def found(visit: Visit, texts: list[str]) -> list[dict[str, int]]:
    """Return the numbers of cases and version sets that the query language finds on all sets."""
    page = visit.open("index.html")
    page.evaluate("ftm.query.ready()")
    return [page.evaluate(FOUND, text) for text in texts]


def test_words_for_squares_find_what_the_filter_finds(visit: Visit) -> None:
    for word, state in (("-fsdp1 is:different", "q=-fsdp1&verdict=differs"), ("is:wrong,crash", VERDICTS)):
        visit.page.goto("about:blank")
        one = seen(visit.matrix(f"#sets=all&q={word}"))
        visit.page.goto("about:blank")
        assert one == seen(visit.matrix(f"#sets=all&{state}"))
        assert one[0] == found(visit, [word])[0]["cases"]


def test_a_case_id_and_hyphens_inside_words_are_no_negation(visit: Visit) -> None:
    case, spaced, plain = found(visit, [CASE, "8-bit - dora", "8-bit dora"])
    assert case["cases"] == 1
    assert spaced == plain


def test_an_unknown_word_for_squares_is_named(visit: Visit) -> None:
    expect(visit.matrix("#q=is:purple").locator("#summary")).to_contain_text("unknown: is:purple")


def test_the_search_box_of_every_page_understands_negation_and_squares(visit: Visit) -> None:
    page = visit.open("index.html")
    page.get_by_role("combobox", name="Search").fill("dora -fsdp1 is:red")
    option = page.get_by_role("option").filter(has_text="in the matrix")
    expect(option).to_be_visible()
    stated = re.match(r"\d+", option.locator(".title").inner_text())
    assert stated is not None
    option.click()
    page.wait_for_selector('#grid[aria-busy="false"]')
    assert seen(page)[0] == int(stated[0])


def test_every_word_for_squares_is_documented(visit: Visit) -> None:
    page = visit.open("matrix.html")
    words: list[str] = page.evaluate(
        "async () => Object.values((await ftm.load('matrix')).letters).map((each) => each[2])"
    )
    text = visit.open("docs/index.html").locator("main").inner_text()
    assert [word for word in (*words, "red", "different", "unexplained") if f"is:{word}" not in text] == []


def test_a_copied_link_says_if_the_site_shows_other_results(chromium: Browser, site: Path) -> None:
    with visiting(chromium, site, permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.matrix("#verdict=wrong")
        page.get_by_role("button", name="Copy link").click()
        address = page.evaluate("navigator.clipboard.readText()")
        assert re.search(r"verdict=wrong&of=\d{4}-\d\d-\d\d\.[0-9a-f]{12}$", address)
        page.goto("about:blank")
        page.goto(address)
        expect(page.locator("#summary")).to_contain_text("case")
        expect(page.get_by_text("This link was copied")).to_have_count(0)
        page.goto("about:blank")
        page.goto(re.sub(r"of=.*", "of=2026-01-02.000000000000", address))
        expect(page.get_by_text("This link was copied from results up to 2026-01-02")).to_be_visible()
