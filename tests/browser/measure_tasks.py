"""Counts clicks, keys and seconds of the usual tasks on a site: ``python -m tests.browser.measure_tasks SITE``.

Each task starts on the first page in a fresh browser context and ends when its answer is visible. Text is typed without
the pauses of a person, and the quickest of three runs counts.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import CHROMIUM, DESKTOP
from tests.browser.test_every_task import CLIPBOARD, UNIFORM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from playwright.sync_api import Browser, Locator, Page, ViewportSize

RUNS: Final = 3
RED: Final = "train-lora-fsdp1-bf16"


@dataclass
class Steps:
    """A page, and how often somebody clicked, pressed a key or pasted on it."""

    page: Page
    clicks: int = 0
    keys: int = 0
    pastes: int = 0

    def click(self, control: Locator) -> None:
        control.click()
        self.clicks += 1

    def write(self, text: str) -> None:
        self.page.keyboard.type(text)
        self.keys += len(text)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.keys += 1

    def paste(self, text: str) -> None:
        self.page.keyboard.insert_text(text)
        self.pastes += 1

    def choose(self, control: Locator, value: str) -> None:
        control.select_option(value)
        self.clicks += 2  # one opens the list

    def menu(self, name: str) -> None:
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=name))

    def search(self, text: str, answer: str) -> None:
        """Type into the box of the first page, and open what it offers first."""
        self.click(self.page.get_by_role("main").get_by_role("combobox", name="Search"))
        self.write(text)
        expect(self.page.get_by_role("option").first).to_contain_text(answer)
        self.press("Enter")

    def filter(self, name: str, value: str) -> None:
        self.click(self.page.locator(f'.pick[data-name="{name}"] > summary'))
        self.click(self.page.locator(f'.pick[data-name="{name}"] input[value="{value}"]'))


def find(steps: Steps) -> None:
    steps.search("qlora fsdp2", "QLoRA + FSDP2")
    expect(steps.page.get_by_role("heading", level=1)).to_have_text("QLoRA + FSDP2")


def why_and_fix(steps: Steps) -> None:
    steps.search(RED, RED)
    expect(steps.page.get_by_text("Cause:").first).to_be_visible()
    steps.click(steps.page.get_by_role("button", name="Copy fix").first)


def proof(steps: Steps) -> None:
    steps.search(RED, RED)
    steps.click(steps.page.locator("p", has_text="Verified fix").get_by_role("link").first)
    expect(steps.page.locator("#selected")).to_contain_text("pass")


def link_to_a_cell(steps: Steps) -> None:
    steps.search(f"2026-11__{RED}", RED)
    steps.click(steps.page.get_by_role("button", name="Copy link to this cell"))


def link_to_a_filter(steps: Steps) -> None:
    steps.menu("Matrix")
    steps.filter("verdict", "wrong")
    steps.click(steps.page.get_by_role("button", name="Copy link"))


def pasted_error(steps: Steps) -> None:
    steps.click(steps.page.get_by_role("main").get_by_role("link", name="My error"))
    steps.click(steps.page.get_by_label("Traceback or log"))
    steps.paste(UNIFORM)
    steps.click(steps.page.get_by_role("button", name="Explain"))
    expect(steps.page.get_by_role("heading", name="Verified fixes").first).to_be_visible()


def pins(steps: Steps) -> None:
    steps.click(steps.page.get_by_role("main").get_by_role("link", name="My job"))
    steps.choose(steps.page.get_by_label("Strategy"), "ddp")
    steps.click(steps.page.get_by_role("button", name="Copy pins"))


def disagreements(steps: Steps) -> None:
    steps.menu("Matrix")
    steps.filter("verdict", "differs")
    expect(steps.page.locator(".square.differs").first).to_be_visible()


def data(steps: Steps) -> None:
    steps.menu("Data")
    with steps.page.expect_download():
        steps.click(steps.page.get_by_role("link", name="cpu.parquet"))


def printed(steps: Steps) -> None:
    steps.search(RED, RED)
    steps.page.wait_for_load_state("networkidle")  # Chromium refuses to print a page that is being loaded
    steps.press("Control+P")  # opens no dialog without a screen, so the page is printed here
    steps.page.pdf()


TASKS: Final[Mapping[str, Callable[[Steps], None]]] = {
    "find QLoRA + FSDP2": find,
    "say why a cell is red, copy the fix": why_and_fix,
    "open the cells that prove it": proof,
    "link to a cell": link_to_a_cell,
    "link to a filtered view": link_to_a_filter,
    "explain a pasted error": pasted_error,
    "pins for a job": pins,
    "where CPU and GPU disagree": disagreements,
    "download the data": data,
    "print a case page": printed,
}


def measured(browser: Browser, site: Path, task: Callable[[Steps], None]) -> tuple[Steps, float]:
    """Return the steps of a task, and the seconds of its quickest run."""
    found = []
    for _ in range(RUNS):
        size: ViewportSize = {"width": DESKTOP[0], "height": DESKTOP[1]}
        context = browser.new_context(viewport=size, permissions=CLIPBOARD["permissions"])
        steps = Steps(context.new_page())
        began = time.monotonic()
        steps.page.goto(f"{site.absolute().as_uri()}/index.html")
        task(steps)
        found.append(time.monotonic() - began)
        context.close()
    return steps, min(found)


def main(site: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        print(f"Chromium {browser.version}, load average {os.getloadavg()[0]:.2f}, quickest of {RUNS} runs")
        print("| task | clicks | keys | pastes | seconds |", "| --- | --: | --: | --: | --: |", sep="\n")
        for name, task in TASKS.items():
            steps, seconds = measured(browser, site, task)
            print(f"| {name} | {steps.clicks} | {steps.keys} | {steps.pastes} | {seconds:.2f} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
