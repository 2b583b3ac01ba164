"""The site of 100,000 made-up cells, with the time and the memory that it took to write."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.browser.made_up_results import write_many

if TYPE_CHECKING:
    from pathlib import Path

CASES, SETS = 1_000, 100
COST: Final = "cost.json"
BUILD: Final = """
import gc, json, re, resource, sys, time
from pathlib import Path
from reports.site.build import build
gc.set_threshold(200_000)  # as the command does
began = time.monotonic()
build(Path(sys.argv[1]), Path(sys.argv[2]))
wall = time.monotonic() - began
usage = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss, which counts the process that started this one.
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
seconds = usage.ru_utime + usage.ru_stime
print(json.dumps({"seconds": seconds, "wall_seconds": wall, "memory_mib": int(peak[1]) / 1024}))
"""


class LargeSite(NamedTuple):
    """The folder of the site, the seconds (of a processor, of a clock) and the memory in MiB that it took to write."""

    folder: Path
    seconds: float
    wall_seconds: float
    memory_mib: float


def write(folder: Path) -> None:
    """Write results, their site and its cost into a folder."""
    results = folder / "results"
    write_many(results, cases=CASES, sets=SETS)
    command = [sys.executable, "-c", BUILD, str(results), str(folder / "site")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (folder / COST).write_text(done.stdout, encoding="utf-8")


def read(folder: Path) -> LargeSite:
    return LargeSite(folder / "site", **json.loads((folder / COST).read_text(encoding="utf-8")))
