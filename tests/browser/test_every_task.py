"""Every task that people come for, by mouse, by keyboard alone and on a phone, in light and dark.

The last page of each task has no violation that axe-core finds; no page had an error or a request elsewhere.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import visiting
from tests.browser.hands import HANDS, clipboard

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.conftest import Visit
    from tests.browser.hands import Mouse

    Task = Callable[[Visit, Mouse, Browser], None]

RED: Final = "case/train-lora-fsdp1-bf16.html"
UNIFORM: Final = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
CLIPBOARD: Final = {"permissions": ["clipboard-read", "clipboard-write"]}


def find_qlora_with_fsdp2(visit: Visit, hand: Mouse, _: Browser) -> None:
    page = visit.open("index.html")
    hand.write(page.get_by_role("combobox", name="Search"), "qlora fsdp2")
    option = page.get_by_role("option").filter(has_text="QLoRA + FSDP2").first
    expect(option).to_be_visible()
    if option.get_attribute("aria-selected") == "true":
        page.keyboard.press("Enter")
    else:
        hand.activate(option)
    expect(page.get_by_role("heading", level=1)).to_have_text("QLoRA + FSDP2")


def say_why_a_cell_is_red_and_copy_the_fix(visit: Visit, hand: Mouse, _: Browser) -> None:
    page = visit.matrix()
    hand.write(page.get_by_label("Words, options, versions or a case id"), "train-lora-fsdp1-bf16")
    row = page.locator(".case").filter(has=page.get_by_title("train-lora-fsdp1-bf16", exact=True))
    expect(row).to_have_count(1)
    hand.open_square(row.locator('.square a[aria-label^="2026-11:"]'))
    expect(page.locator("#selected")).to_contain_text("fail")
    expect(page.locator("#cell")).to_contain_text("Must flatten tensors with uniform dtype")
    expect(page.get_by_text("Cause:").first).to_be_visible()
    hand.activate(page.get_by_role("button", name="Copy fix").first)
    assert "fsdp_auto_wrap_policy(model)" in clipboard(page)


def open_the_cells_that_prove_a_fix(visit: Visit, hand: Mouse, _: Browser) -> None:
    page = visit.open(f"{RED}#set=2026-11&on=cuda")
    expect(page.locator("#selected")).to_contain_text("fail")
    proof = page.locator("p", has_text="Verified fix").get_by_role("link").first
    name = proof.inner_text().replace("\N{ZERO WIDTH SPACE}", "")
    hand.activate(proof)
    expect(page.locator("#selected")).to_contain_text("pass")
    expect(page.locator("#case")).to_have_attribute("data-case", name.partition("__")[2])


def follow_a_link_to_a_filter_in_a_fresh_browser(visit: Visit, hand: Mouse, chromium: Browser) -> None:
    page = visit.matrix()
    hand.pick("verdict", "wrong", "hang")
    hand.pick("device", "cuda")
    seen = page.locator("#summary").inner_text()
    hand.activate(page.get_by_role("button", name="Copy link"))
    with visiting(chromium, visit.root, size=hand.size) as fresh:
        fresh.page.goto(clipboard(page))
        expect(fresh.page.locator("#summary")).to_have_text(seen)
        expect(fresh.page.locator('.pick[data-name="verdict"] .chosen')).to_have_text("wrong, hang")


def follow_a_link_to_a_cell_in_a_fresh_browser(visit: Visit, hand: Mouse, chromium: Browser) -> None:
    page = visit.open(RED)
    hand.activate(page.locator('a[data-cell="cpu 2024-06"]'))
    expect(page.locator("#selected")).to_have_text("2024-06, CPU: pass")
    with visiting(chromium, visit.root, size=hand.size) as fresh:
        fresh.page.goto(page.url)
        expect(fresh.page.locator("#selected")).to_have_text("2024-06, CPU: pass")


def paste_an_error(visit: Visit, hand: Mouse, _: Browser) -> None:
    page = visit.open("index.html")
    hand.activate(page.get_by_role("main").get_by_role("link", name="My error"))
    hand.write(page.get_by_label("Traceback or log"), f"peft 0.18.0\n{UNIFORM}")
    hand.activate(page.get_by_role("button", name="Explain"))
    expect(page.locator("#answer")).to_have_attribute("data-ids", re.compile("fsdp1-uniform-dtype"))
    expect(page.get_by_role("heading", name="Verified fixes").first).to_be_visible()
    expect(page.get_by_text("adapter-dtype-changes-on-resume").first).to_be_visible()  # what the first fix brings
    hand.activate(page.get_by_role("button", name="Copy fix").first)
    assert "autocast_adapter_dtype=False" in clipboard(page)


def get_pins_for_a_job(visit: Visit, hand: Mouse, _: Browser) -> None:
    page = visit.open("index.html")
    hand.activate(page.get_by_role("main").get_by_role("link", name="My job"))
    hand.choose(page.get_by_label("Quantisation"), "none")
    hand.choose(page.get_by_label("Strategy"), "ddp")
    hand.choose(page.get_by_label("Device"), "cpu")
    hand.activate(page.get_by_role("button", name="Copy pins"))
    assert re.search(r"^torch==\d", clipboard(page), re.MULTILINE)
    expect(page.get_by_role("link", name="Download the requirements with hashes")).to_be_visible()


def see_where_cpu_and_gpu_disagree(visit: Visit, hand: Mouse, _: Browser) -> None:
    page = visit.matrix()
    hand.pick("verdict", "differs")
    square = page.locator(".square.differs a").first
    expect(square).to_be_visible()
    assert "CPU and GPU disagree" in (square.get_attribute("aria-label") or "")
    hand.open_square(square)
    expect(page.locator("#selected")).to_be_visible()


def download_the_data(visit: Visit, hand: Mouse, _: Browser) -> None:
    page = visit.open("index.html")
    hand.activate(page.get_by_role("navigation").get_by_role("link", name="Data"))
    with page.expect_download() as started:
        hand.activate(page.get_by_role("link", name="cpu.parquet"))
    assert started.value.path().read_bytes().startswith(b"PAR1")


def print_a_case(visit: Visit, _: Mouse, __: Browser) -> None:
    page = visit.open(f"{RED}#set=2026-11&on=cpu")
    expect(page.locator("#selected")).to_be_visible()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("header.top")).to_be_hidden()
    expect(page.get_by_text("method", exact=True).first).to_be_visible()
    assert page.pdf().startswith(b"%PDF")


TASKS: Final = (
    *(find_qlora_with_fsdp2, say_why_a_cell_is_red_and_copy_the_fix, open_the_cells_that_prove_a_fix),
    *(follow_a_link_to_a_filter_in_a_fresh_browser, follow_a_link_to_a_cell_in_a_fresh_browser, paste_an_error),
    *(get_pins_for_a_job, see_where_cpu_and_gpu_disagree, download_the_data, print_a_case),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("hand", HANDS, ids=lambda hand: hand.__name__.lower())
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_a_task_is_done(chromium: Browser, site: Path, task: Task, hand: type[Mouse], scheme: str) -> None:
    with visiting(chromium, site, size=hand.size, scheme=scheme, **CLIPBOARD, **hand.settings) as visit:
        task(visit, hand(visit.page), chromium)
        assert visit.violations() == []
