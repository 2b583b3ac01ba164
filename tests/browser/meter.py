"""Reads what Chromium measures of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page


class Meter:
    """Reads what Chromium measures of a page: the processor time of its main thread, and its heap."""

    def __init__(self, page: Page) -> None:
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read(self, name: str) -> float:
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == name))

    def seconds(self, action: Callable[[], object]) -> float:
        start = self.read("TaskDuration")
        action()
        return self.read("TaskDuration") - start
