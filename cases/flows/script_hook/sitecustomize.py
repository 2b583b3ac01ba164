"""Records the exception that ends a Python process of a user's script, and its stacks shortly before the deadline.

Launchers report only that a rank failed, and ranks mix the lines of their tracebacks. Python imports this module when
it starts (https://docs.python.org/3/library/site.html). Another ``sitecustomize`` on the path is imported as well.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

DEATHS, STACKS_AT = "FTMATRIX_DEATHS", "FTMATRIX_STACKS_AT"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # of torchrun, Open MPI and MPICH
LONGEST = 20_000  # characters
KEPT: list[Any] = []  # faulthandler holds only the descriptor of a file


def rank() -> int | None:
    found = next((os.environ[name] for name in RANKS if os.environ.get(name, "").isdigit()), "")
    return int(found) if found else None


def record(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write the exception to a file of its own, in one step."""
    frames = traceback.extract_tb(trace)
    found = {
        "rank": rank(),
        "pid": os.getpid(),
        "at": time.time(),
        "type": kind.__name__,
        "message": str(error)[:LONGEST],
        "traceback": "".join(traceback.format_exception(kind, error, trace))[-LONGEST:],
        "file": frames[-1].filename if frames else "",
    }
    path = Path(os.environ[DEATHS], f"{os.getpid()}-{time.time_ns()}.json")
    new = path.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.rename(path)


def install() -> None:
    """Record uncaught exceptions before whatever prints them."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with contextlib.suppress(Exception):  # the script must end as it would without us
            record(kind, error, trace)
        previous(kind, error, trace)

    sys.excepthook = hook


def dump_stacks_late() -> None:
    """Write the stacks of all threads at the requested time, in seconds since the epoch, if this process runs then."""
    left = float(os.environ[STACKS_AT]) - time.time()
    if left <= 0:
        return
    name = "launcher" if rank() is None else str(rank())
    path = Path(os.environ[DEATHS]).parent / f"rank-{name}-{os.getpid()}.stack"
    KEPT.append(path.open("w"))
    faulthandler.dump_traceback_later(left, file=KEPT[-1])


def import_next() -> None:
    """Import the ``sitecustomize`` that this module hides, if there is one."""
    others = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if DEATHS in os.environ:
    install()
    with contextlib.suppress(Exception):
        dump_stacks_late()
import_next()
