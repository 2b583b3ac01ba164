"""What the search box, the matrix and the comparisons do beside the tasks of ``test_every_task``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from playwright.sync_api import expect

from tests.browser.conftest import visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.conftest import Visit

RED = "case/train-lora-fsdp1-bf16.html"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB"
UNIFORM = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"


def test_the_box_takes_a_version_an_option_and_a_cell(visit: Visit) -> None:
    page = visit.open("index.html")
    box = page.get_by_role("combobox", name="Search")
    box.fill("torch 2.8")
    expect(page.get_by_role("option").first).to_contain_text("with torch 2.8")
    box.fill("use_orig_params=false")
    expect(page.get_by_role("option").filter(has_text="in the matrix")).to_be_visible()
    box.fill("8 bit dora")
    expect(page.get_by_role("option").first).to_contain_text("DoRA 8-bit")
    box.fill("2026-11__train-lora-fsdp1-bf16")
    expect(page.get_by_role("option").first).to_contain_text("train-lora-fsdp1-bf16")
    box.press("Enter")
    expect(page.locator("#selected")).to_contain_text("2026-11")


def test_an_error_typed_into_the_box_leads_to_its_explanation_by_keyboard(visit: Visit) -> None:
    page = visit.open("index.html")
    page.get_by_role("combobox", name="Search").fill(OOM)
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_have_attribute("data-ids", re.compile("gpu-out-of-memory"))


def test_a_traceback_pasted_into_the_box_keeps_its_lines(chromium: Browser, site: Path) -> None:
    with visiting(chromium, site, permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.open("features.html")
        log = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n{UNIFORM}'
        page.evaluate("text => navigator.clipboard.writeText(text)", log)
        page.locator("header .box").focus()
        page.keyboard.press("Control+V")
        expect(page.get_by_label("Traceback or log")).to_have_value(log)
        expect(page.locator("#answer")).to_have_attribute("data-ids", re.compile("fsdp1-uniform-dtype"))


def test_pasted_versions_name_their_known_errors(visit: Visit) -> None:
    page = visit.open("stack.html#method=lora&quant=none&strategy=single&device=cpu&tasks=train")
    page.get_by_label("Output of").fill("torch==2.10.0\ntransformers==5.3.0\npeft==0.18.1\nsix==1.0")
    expect(page.locator("#known")).to_contain_text("Nearest measured set: 2026-03")
    expect(page.locator("#known")).to_contain_text("The Trainer")


def test_the_matrix_is_used_with_arrow_keys(visit: Visit) -> None:
    page = visit.matrix()
    page.locator("#grid [tabindex='0']").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    focused = page.evaluate(
        "[document.activeElement.closest('[data-row]').dataset.row, "
        "document.activeElement.closest('[data-column]').dataset.column]"
    )
    assert focused == ["2", "2"]
    page.keyboard.press("Control+End")
    bounds = page.evaluate(
        "(() => { const [a, b] = [document.activeElement, document.querySelector('#grid .head')]"
        ".map((each) => each.getBoundingClientRect()); return [a.top, b.bottom, a.bottom, innerHeight]; })()"
    )
    assert bounds[0] >= bounds[1]
    assert bounds[2] <= bounds[3]
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("case/"))


def test_groups_fold_and_the_address_keeps_it(visit: Visit) -> None:
    page = visit.matrix()
    first = page.locator(".group button").first
    expect(first).to_have_attribute("aria-expanded", "true")
    first.click()
    expect(first).to_have_attribute("aria-expanded", "false")
    page.reload()
    expect(page.locator(".group button").first).to_have_attribute("aria-expanded", "false")


def test_the_matrix_fits_a_phone(phone: Visit) -> None:
    page = phone.matrix("#q=qlora%20fsdp2")
    expect(page.locator(".square").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_any_two_sets_can_be_compared(visit: Visit) -> None:
    page = visit.open("changes.html#device=cpu&base=2025-09&new=2025-12")
    expect(page.locator("#difference")).to_contain_text("torch 2.8.0 → 2.9.1")
    expect(page.locator("#difference")).to_contain_text("Became green")


def test_every_link_inside_the_main_pages_leads_to_a_file(visit: Visit, site: Path) -> None:
    pages = [path.name for path in site.glob("*.html")] + ["docs/index.html", RED]
    missing = []
    for name in pages:
        page = visit.open(name)
        links = page.eval_on_selector_all("a[href], img[src]", "all => all.map((each) => each.href || each.src)")
        local = {link.partition("#")[0] for link in links if link.startswith("file:")}
        missing += [(name, link) for link in local if not exists(link)]
    assert missing == []


def exists(address: str) -> bool:
    return Path(unquote(urlparse(address).path)).exists()
