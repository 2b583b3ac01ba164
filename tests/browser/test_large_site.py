"""The time and the memory to write the site of 100,000 made-up cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.browser.large_site import LargeSite

# Seconds of a processor, which other work on the machine changes least, and MiB. It took 53 s and 516 MiB on two busy
# cores; outcomes are read from their file one by one, so memory hardly depends on what a cell stores.
MOST_SECONDS, MOST_MEMORY = 90, 1000


def test_the_site_is_written_in_time_and_memory(large: LargeSite) -> None:
    assert large.seconds < MOST_SECONDS
    assert large.memory_mib < MOST_MEMORY
