"""axe-core finds nothing on any kind of page: dark and light, on a desktop and on a phone; contrast without hue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.browser.conftest import DESKTOP, PHONE, visiting

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.conftest import Visit

PAGES: Final = (
    *("index.html", "features.html", "feature/qlora-fsdp2.html", "findings.html", "causes.html", "data.html"),
    *("stack.html", "error.html", "pairs.html", "changes.html", "changes/cpu-2025-09-to-2025-12.html"),
    *("finding/trainer-accumulation-halves.html", "cause/fsdp1-uniform-dtype.html"),
    *("case/train-lora-fsdp1-bf16.html#set=2026-11&on=cpu", "case/train-full-fsdp2-fp32.html#set=2025-09&on=cpu"),
    *("docs/index.html", "docs/commands.html", "docs/verdicts.html", "docs/add.html", "docs/runner.html"),
)
LUMINANCE: Final = """() => Object.fromEntries(["pass", "fail", "wrong", "skip"].map((name) => {
  const probe = document.createElement("span");
  probe.className = `mark ${name}`;
  document.body.append(probe);
  const [r, g, b] = getComputedStyle(probe).backgroundColor.match(/[\\d.]+/g).map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
  probe.remove();
  return [name, 0.2126 * r + 0.7152 * g + 0.0722 * b];
}))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_no_page_violates_a_rule(chromium: Browser, site: Path, size: tuple[int, int], scheme: str) -> None:
    with visiting(chromium, site, size=size, scheme=scheme) as visit:
        found = {}
        for path in PAGES:
            page = visit.open(path)
            page.wait_for_load_state()
            page.wait_for_timeout(150)
            page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            found[path] = visit.violations()
            wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            found[f"{path}: width"] = ["scrolls sideways"] if wide else []
        assert {path: rows[:3] for path, rows in found.items() if rows} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_matrix_violates_no_rule(chromium: Browser, site: Path, size: tuple[int, int], scheme: str) -> None:
    with visiting(chromium, site, size=size, scheme=scheme) as visit:
        visit.matrix("#verdict=differs")
        assert visit.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_red_and_green_differ_in_lightness(chromium: Browser, site: Path, scheme: str) -> None:
    """3:1 is what WCAG 2.2 asks of parts that must be told apart."""
    with visiting(chromium, site, scheme=scheme) as visit:
        seen = visit.open("index.html").evaluate(LUMINANCE)
        for red in ("fail", "wrong"):
            light, dark = max(seen[red], seen["pass"]), min(seen[red], seen["pass"])
            assert (light + 0.05) / (dark + 0.05) > 3


def test_the_skip_link_comes_first_and_works(visit: Visit) -> None:
    page = visit.open("features.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_search_results_violate_no_rule(visit: Visit) -> None:
    page = visit.open("index.html")
    page.get_by_role("combobox", name="Search").fill("qlora")
    page.get_by_role("option").first.wait_for()
    assert visit.violations() == []
