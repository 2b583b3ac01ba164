"""What people come for, by mouse, by keyboard and on a phone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from playwright.sync_api import expect

from tests.browser.conftest import visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import Visit

RED = "case/train-lora-fsdp1-bf16.html"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB"
UNIFORM = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"


def clipboard(page: Page) -> str:
    """Return what a copy button left in the clipboard."""
    page.evaluate("document.body.append(Object.assign(document.createElement('textarea'), { id: 'pasted' }))")
    page.locator("#pasted").focus()
    page.keyboard.press("Control+V")
    text = page.locator("#pasted").input_value()
    page.evaluate("document.getElementById('pasted').remove()")
    return text


def test_the_box_finds_qlora_with_fsdp2_by_mouse(visit: Visit) -> None:
    page = visit.open("index.html")
    page.get_by_role("combobox", name="Search").fill("qlora fsdp2")
    page.get_by_role("option").filter(has_text="QLoRA + FSDP2").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("QLoRA + FSDP2")
    expect(page.get_by_role("heading", name="GPU", exact=True)).to_be_visible()


def test_the_box_finds_qlora_with_fsdp2_by_keyboard(visit: Visit) -> None:
    page = visit.open("matrix.html")
    page.locator("header .box").focus()
    page.keyboard.type("QLoRA + FSDP2")
    expect(page.get_by_role("option").first).to_contain_text("QLoRA + FSDP2")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("feature/qlora-fsdp2"))


def test_the_box_finds_qlora_with_fsdp2_on_a_phone(phone: Visit) -> None:
    page = phone.open("index.html")
    page.get_by_role("combobox", name="Search").fill("qlora fsdp2")
    page.get_by_role("option").first.tap()
    expect(page).to_have_url(re.compile("feature/"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


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


def test_a_red_cell_says_why_and_its_fix_can_be_copied(chromium: Browser, site: Path) -> None:
    with visiting(chromium, site, permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.matrix("#q=train-lora-fsdp1-bf16")
        page.locator('.square a[aria-label*="2026-11:"]').first.click()
        expect(page.locator("#selected")).to_contain_text("fail")
        expect(page.locator("#cell")).to_contain_text("Must flatten tensors with uniform dtype")
        expect(page.get_by_text("Cause:").first).to_be_visible()
        page.get_by_role("button", name="Copy fix").first.click()
        assert "fsdp_auto_wrap_policy(model)" in clipboard(page)


def test_the_cells_that_prove_a_fix_are_one_click_away(visit: Visit) -> None:
    page = visit.open(f"{RED}#set=2026-11&on=cuda")
    proof = page.locator("p", has_text="Verified fix").get_by_role("link").first
    name = proof.inner_text().replace("\N{ZERO WIDTH SPACE}", "")
    proof.click()
    expect(page.locator("#selected")).to_contain_text("pass")
    expect(page.locator("#case")).to_have_attribute("data-case", name.partition("__")[2])


def test_a_link_to_a_cell_and_to_a_filter_work_in_a_fresh_browser(chromium: Browser, site: Path, visit: Visit) -> None:
    page = visit.matrix()
    page.get_by_label("Verdict").select_option("wrong")
    page.get_by_label("Device").select_option("cuda")
    expect(page.locator("#summary")).to_contain_text("case")
    address, seen = page.url, page.locator("#summary").inner_text()
    with visiting(chromium, site) as fresh:
        fresh.page.goto(address)
        expect(fresh.page.locator("#summary")).to_have_text(seen)
        expect(fresh.page.get_by_label("Verdict")).to_have_value("wrong")
        fresh.open(f"{RED}#set=2024-06&on=cpu")
        expect(fresh.page.locator("#selected")).to_have_text("2024-06, CPU: pass")


def test_a_pasted_error_is_explained_with_verified_fixes(visit: Visit) -> None:
    page = visit.open("error.html")
    page.get_by_label("Traceback or log").fill(UNIFORM)
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#answer")).to_have_attribute("data-ids", re.compile("fsdp1-uniform-dtype"))
    expect(page.get_by_role("heading", name="Verified fixes").first).to_be_visible()


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


def test_pins_for_a_job_can_be_copied_by_keyboard(chromium: Browser, site: Path) -> None:
    with visiting(chromium, site, permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.open("stack.html")
        page.get_by_label("Quantisation").select_option("none")
        page.get_by_label("Strategy").select_option("ddp")
        page.get_by_label("Device").select_option("cpu")
        button = page.get_by_role("button", name="Copy pins")
        button.focus()
        page.keyboard.press("Enter")
        assert re.search(r"^torch==\d", clipboard(page), re.MULTILINE)
        expect(page.get_by_role("link", name="Download the requirements with hashes")).to_be_visible()


def test_pasted_versions_name_their_known_errors(visit: Visit) -> None:
    page = visit.open("stack.html#method=lora&quant=none&strategy=single&device=cpu&tasks=train")
    page.get_by_label("Output of").fill("torch==2.10.0\ntransformers==5.3.0\npeft==0.18.1\nsix==1.0")
    expect(page.locator("#known")).to_contain_text("Nearest measured set: 2026-03")
    expect(page.locator("#known")).to_contain_text("The Trainer")


def test_squares_where_devices_disagree_are_marked(visit: Visit) -> None:
    page = visit.matrix()
    page.get_by_label("Verdict").select_option("differs")
    expect(page.locator(".square.differs").first).to_be_visible()
    label = page.locator(".square.differs a").first.get_attribute("aria-label") or ""
    assert "CPU and GPU disagree" in label


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


def test_data_can_be_downloaded(visit: Visit) -> None:
    page = visit.open("data.html")
    with page.expect_download() as started:
        page.get_by_role("link", name="cpu.parquet").click()
    assert started.value.path().read_bytes().startswith(b"PAR1")


def test_a_case_prints_with_all_its_parts(visit: Visit) -> None:
    page = visit.open(f"{RED}#set=2026-11&on=cpu")
    expect(page.locator("#selected")).to_be_visible()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("header.top")).to_be_hidden()
    expect(page.get_by_text("method", exact=True).first).to_be_visible()
    assert page.pdf().startswith(b"%PDF")


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
