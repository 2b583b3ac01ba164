"""A site of the real published results, and pages in Chromium that allow no error and no request elsewhere."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from reports.answers.knowledge import PUBLISHED
from reports.site.build import build
from tests.browser import large_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

    from tests.browser.large_site import LargeSite

CHROMIUM: Final = os.environ.get("FTMATRIX_CHROMIUM") or shutil.which("chromium")
SITE: Final = os.environ.get("FTMATRIX_SITE")  # a folder with a site, to test without writing it
SITES: Final = os.environ.get("FTMATRIX_SITES")  # a folder that keeps the sites of a session for the next one
FIRST: Final = ("test_large_site.py", "test_explanations.py", "test_accessibility.py")  # their tests take longest
DESKTOP, PHONE = (1280, 850), (390, 844)
# Without `preload`, which would fetch the style sheets and is nothing that the policy allows.
RULES: Final = {"preload": False, "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@dataclass
class Visit:
    """A page with all that went wrong on it."""

    page: Page
    root: Path
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self.heard)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("request", self.requested)
        self.page.on("requestfailed", self.failed)

    def heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # as a download is, from the page's point of view
            self.problems.append(f"failed: {request.url}: {request.failure}")

    def requested(self, request: Request) -> None:
        if not request.url.startswith((self.root.as_uri(), "data:", "blob:")):
            self.problems.append(f"request elsewhere: {request.url}")

    def open(self, path: str) -> Page:
        """Open a page of the site from the folder, without a host."""
        self.page.goto(f"{self.root.as_uri()}/{path}")
        return self.page

    def matrix(self, state: str = "") -> Page:
        """Open the matrix and wait until it is drawn."""
        page = self.open(f"matrix.html{state}")
        page.wait_for_selector('#grid[aria-busy="false"]')
        return page

    def violations(self) -> list[str]:
        """Return what axe-core finds on the page."""
        found: list[dict[str, Any]] = Axe().run(self.page, options=RULES).response["violations"]
        return [f"{each['id']}: {node['target']} {node['failureSummary']}" for each in found for node in each["nodes"]]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox, and the pages are our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest tests start first, so that none of them is the last to run beside idle workers."""
    ranks = {name: rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(FIRST)))


@pytest.fixture(scope="session")
def shared_folder(shared_folder: Path) -> Path:
    return Path(SITES) if SITES else shared_folder


@pytest.fixture(scope="session")
def site(make_once: Callable[..., Path]) -> Path:
    """The site of all published results."""
    return Path(SITE) if SITE else make_once("site", lambda folder: build(PUBLISHED, folder))


@pytest.fixture(scope="session")
def large(make_once: Callable[..., Path]) -> LargeSite:
    return large_site.read(make_once("large", large_site.write))


@contextmanager
def visiting(
    browser: Browser, root: Path, *, size: tuple[int, int] = DESKTOP, scheme: Any = "light", **more: Any
) -> Iterator[Visit]:
    """Open a fresh browser context, and fail if anything went wrong on its page."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **more)
    visit = Visit(page=context.new_page(), root=root)
    yield visit
    context.close()
    assert visit.problems == []


@pytest.fixture
def visit(chromium: Browser, site: Path) -> Iterator[Visit]:
    """A page at the size of a desktop."""
    with visiting(chromium, site) as each:
        yield each


@pytest.fixture
def phone(chromium: Browser, site: Path) -> Iterator[Visit]:
    """A page of 390 pixels with touch."""
    with visiting(chromium, site, size=PHONE, has_touch=True) as each:
        yield each
