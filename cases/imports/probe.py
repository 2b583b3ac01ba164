"""Imports the stack in combinations of versions; the process imports torch once and forks a child for each.

    python -m cases.imports.probe COMBINATIONS RESULTS [--limit SECONDS] [--minutes MINUTES] [--extra FOLDER]

Each line of the first file is a combination; the second one gets a line for each. A child sees the combination's
folders before the environment's own packages.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from cases.imports.steps import OF_TRL, steps
from cases.imports.wire import LIBRARIES, Combination, CombinationResult, StepResult

if TYPE_CHECKING:
    from collections.abc import Callable

# What the stack imports besides itself, so that it does not count for each child.
PRELOADED = (
    *("torch", "torch.distributed", "torch.utils.data", "torch.distributed.fsdp", "torch.utils.checkpoint"),
    *("torch._dynamo", "torch._inductor.compile_fx"),  # bitsandbytes compiles functions when it is imported
    *("numpy", "yaml", "regex", "tqdm", "tqdm.auto", "packaging.version", "filelock", "psutil", "jinja2", "pandas"),
    *("pyarrow", "pyarrow.parquet", "requests", "fsspec", "rich", "multiprocess", "dill", "xxhash"),
    *("pyarrow.dataset", "aiohttp", "httpx", "pydantic", "scipy.optimize", "scipy.stats", "typer", "tyro"),
)
LONGEST_MESSAGE = 600
MOST_PLACES = 40
COMMON = "common"  # name of the report of what all versions of trl share


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
    options.results.with_suffix(LIBRARIES).write_text(json.dumps(libraries(), indent=0), encoding="utf-8")
    # Children end soon. Collections would take a quarter of their time, and copy the pages that they share.
    gc.collect()
    gc.freeze()
    gc.disable()
    end = time.monotonic() + 60 * options.minutes
    with options.results.open("a", encoding="utf-8", buffering=1) as sink:
        for line in options.combinations.read_text(encoding="utf-8").splitlines():
            if time.monotonic() > end:
                return
            for each in measured(Combination.parsed(line), limit=options.limit, torch=torch):
                sink.write(each.line() + "\n")


def libraries() -> dict[str, str]:
    """Return the version of each top-level module that a distribution of the environment installs."""
    found: dict[str, str] = {}
    for module, names in importlib.metadata.packages_distributions().items():
        if module.isidentifier():
            found[module] = importlib.metadata.version(names[0])
    return dict(sorted(found.items()))


def measured(combination: Combination, *, limit: float, torch: str) -> list[CombinationResult]:
    """Run the steps of a combination in a child, and those of trl in a child of it for each version of trl."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            run_combination(combination, Path(folder), limit)
        ended = wait(child, limit * (1 + len(combination.variants)))
        common = results_in(Path(folder) / COMMON)
        seconds = round((time.monotonic() - started) / len(combination.variants), 2)
        return [
            CombinationResult(
                versions={**combination.versions, "trl": version},
                steps=(*common, *results_in(Path(folder) / version)),
                python=platform.python_version(),
                torch=torch,
                seconds=seconds,
                ended=ended,
            )
            for version, _ in combination.variants
        ]


def results_in(report: Path) -> tuple[StepResult, ...]:
    if not report.exists():
        return ()
    return tuple(StepResult.parsed(each) for each in report.read_text(encoding="utf-8").splitlines())


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


def run_combination(combination: Combination, reports: Path, limit: float) -> None:
    """Run in the child; it never returns."""
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        lay_over(combination.folders)
        run_steps(reports / COMMON, of_trl=False)
        for version, folder in combination.variants:
            child = os.fork()
            if child == 0:
                lay_over((folder,))
                run_steps(reports / version, of_trl=True)
                return
            wait(child, limit)
    finally:
        os._exit(0)


def lay_over(folders: tuple[str, ...]) -> None:
    sys.path[:0] = folders
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()


def run_steps(report: Path, *, of_trl: bool) -> None:
    with report.open("a", encoding="utf-8", buffering=1) as sink:
        for name, step in steps().items():
            if (name in OF_TRL) is of_trl:
                error = failure(step)
                result = StepResult(step=name) if error is None else described(name, error)
                sink.write(result.line() + "\n")


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
    """Return the dotted module of a file in one of the folders of ``sys.path``; empty if it is in none.

    The innermost of them counts: the working folder may have the environment and this code below it.
    """
    folder = max((each for each in sys.path if each and path.startswith(each + "/")), key=len, default="")
    if not folder:
        return ""
    return path[len(folder) + 1 :].removesuffix(".py").replace("/", ".").removesuffix(".__init__")


if __name__ == "__main__":
    main()
