"""Imports the stack in combinations of versions; the process imports torch once and forks a child for each.

    python -m cases.imports.probe COMBINATIONS RESULTS [--limit SECONDS] [--minutes MINUTES] [--extra FOLDER]

Each line of the first file is a combination; the second one gets a line for each. A child sees the combination's
folders before the environment's own packages.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from cases.imports.steps import steps
from cases.imports.wire import Combination, CombinationResult, StepResult

if TYPE_CHECKING:
    from collections.abc import Callable

# What the stack imports besides itself, so that it does not count for each child.
PRELOADED = (
    *("torch", "torch.distributed", "torch.utils.data", "torch.distributed.fsdp", "torch.utils.checkpoint"),
    *("numpy", "yaml", "regex", "tqdm", "tqdm.auto", "packaging.version", "filelock", "psutil", "jinja2", "pandas"),
    *("pyarrow", "pyarrow.parquet", "requests", "fsspec", "rich", "multiprocess", "dill", "xxhash"),
)
LONGEST_MESSAGE = 600
MOST_PLACES = 40


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("combinations", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for a combination")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no combination afterwards")
    parser.add_argument("--extra", default="", help="folder with libraries that take precedence over the environment's")
    options = parser.parse_args()
    if options.extra:
        sys.path.insert(0, options.extra)
    for name in PRELOADED:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    torch = str(sys.modules["torch"].__version__)
    end = time.monotonic() + 60 * options.minutes
    with options.results.open("a", encoding="utf-8", buffering=1) as sink:
        for line in options.combinations.read_text(encoding="utf-8").splitlines():
            if time.monotonic() > end:
                return
            sink.write(measured(Combination.parsed(line), limit=options.limit, torch=torch).line() + "\n")


def measured(combination: Combination, *, limit: float, torch: str) -> CombinationResult:
    """Run the steps of a combination in a child."""
    started = time.monotonic()
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as report:
        child = os.fork()
        if child == 0:
            run_steps(combination, report.name)
        ended = wait(child, limit)
        found = [StepResult.parsed(each) for each in Path(report.name).read_text(encoding="utf-8").splitlines()]
    return CombinationResult(
        versions=combination.versions,
        steps=tuple(found),
        python=platform.python_version(),
        torch=torch,
        seconds=round(time.monotonic() - started, 2),
        ended=ended,
    )


def wait(child: int, limit: float) -> str:
    """Wait for a child; end it after the limit. Return why it did not end by itself."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"time limit of {limit:.0f} s"


def run_steps(combination: Combination, report: str) -> None:
    """Run in the child; it never returns."""
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        sys.path[:0] = combination.folders
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        with open(report, "a", encoding="utf-8", buffering=1) as sink:  # noqa: PTH123 - written line by line
            for name, step in steps().items():
                error = failure(step)
                result = StepResult(step=name) if error is None else described(name, error)
                sink.write(result.line() + "\n")
    finally:
        os._exit(0)


def failure(step: Callable[[], object]) -> BaseException | None:
    try:
        step()
    except BaseException as error:  # noqa: BLE001 - whatever the stack raises is the result
        return error
    return None


def described(name: str, error: BaseException) -> StepResult:
    """Return an error with the message of its first cause: lazy modules raise others from it."""
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    message = " ".join(str(innermost).split())[:LONGEST_MESSAGE]
    return StepResult(step=name, error=type(innermost).__name__, message=message, places=places(innermost))


def places(error: BaseException) -> tuple[str, ...]:
    frames = [each.filename for each in traceback.extract_tb(error.__traceback__)]
    found = [module_of(each) for each in frames if "importlib" not in each and "<" not in each]
    return tuple(dict.fromkeys(each for each in found if each))[-MOST_PLACES:]


def module_of(path: str) -> str:
    """Return the dotted module of a file in one of the folders of ``sys.path``."""
    folder = next((each for each in sys.path if each and path.startswith(each + "/")), None)
    return (
        ""
        if folder is None
        else path[len(folder) + 1 :].removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    )


if __name__ == "__main__":
    main()
