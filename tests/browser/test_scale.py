"""100,000 made-up cells: the time and the memory to write the site and to use its matrix."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.browser.conftest import visiting
from tests.browser.made_up_results import write_many

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

CASES, SETS = 1_000, 100
BUILD: Final = """
import gc, resource, sys
from pathlib import Path
from reports.site.build import build
gc.set_threshold(200_000)  # as the command does
build(Path(sys.argv[1]), Path(sys.argv[2]))
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""
# Seconds of a processor, which other work on the machine changes least, and MiB. It took 53 s and 516 MiB on two busy
# cores; outcomes are read from their file one by one, so memory hardly depends on what a cell stores.
MOST_SECONDS, MOST_MEMORY = 90, 1000
HEAP: Final = 300e6


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float, float]:
    """The site, and the seconds and MiB that it took."""
    results, folder = tmp_path_factory.mktemp("large"), tmp_path_factory.mktemp("site")
    write_many(results, cases=CASES, sets=SETS)
    done = subprocess.run([sys.executable, "-c", BUILD, results, folder], check=True, capture_output=True, text=True)
    seconds, memory = map(float, done.stdout.split())
    return folder, seconds, memory


def test_the_site_is_written_in_time_and_memory(large: tuple[Path, float, float]) -> None:
    _, seconds, memory = large
    assert seconds < MOST_SECONDS
    assert memory < MOST_MEMORY


def test_the_matrix_is_usable(chromium: Browser, large: tuple[Path, float, float]) -> None:
    with visiting(chromium, large[0]) as visit:
        start = time.monotonic()
        page = visit.matrix("#sets=all")
        opened = time.monotonic() - start
        filtered = page.evaluate(
            "async () => { const start = performance.now(); const field = document.querySelector('[name=verdict]');"
            " field.value = 'red'; field.dispatchEvent(new Event('input', { bubbles: true }));"
            " await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
            " return performance.now() - start; }"
        )
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        assert page.locator("#grid [role=row]").count() < 100
        assert opened < 6  # 2 on an idle machine
        assert filtered < 1000  # 200 on an idle machine
        assert heap < HEAP
