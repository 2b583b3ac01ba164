"""The memory and the time for the data of the site grow with the number of cells, and not with what a cell stores."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.browser.made_up_results import write_many

if TYPE_CHECKING:
    from pathlib import Path

LOAD: Final = """
import resource, sys
from pathlib import Path
from reports.site.matrix_data import matrix_data
from reports.site.published_data import load
published = load(Path(sys.argv[1]))
matrix_data(published)
assert sum(len(each) for each in published.rows_by_case.values()) == int(sys.argv[2])
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)
"""
SMALL, LARGE = (20, 50), (200, 100)  # cases and sets
MOST_BYTES: Final = 9_000  # for a further cell, of which every seventh is red; 6,100 were measured
MOST_MILLISECONDS: Final = 0.5  # of a processor for a further cell; 0.07 were measured


class Load(NamedTuple):
    cells: int
    size: float
    seconds: float


def load(folder: Path, cases: int, sets: int) -> Load:
    write_many(folder, cases=cases, sets=sets)
    command = [sys.executable, "-c", LOAD, str(folder), str(cases * sets)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    size, seconds = map(float, done.stdout.split())
    return Load(cases * sets, size, seconds)


def test_a_further_cell_takes_little_memory_and_time(tmp_path: Path) -> None:
    small, large = load(tmp_path / "small", *SMALL), load(tmp_path / "large", *LARGE)
    cells = large.cells - small.cells
    assert (large.size - small.size) / cells < MOST_BYTES
    assert (large.seconds - small.seconds) / cells * 1000 < MOST_MILLISECONDS
