"""Draws the measurements of ``bench`` as text with two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.experiments.bench import BenchResult
    from matrix.experiments.profile import TimeProfile


def lines(result: BenchResult) -> Iterator[str]:
    workers, passes = counted(result.workers, "worker"), counted(result.repeats, "pass", "passes")
    yield f"{result.set} on {result.hardware}, {workers}, medians of {passes}"
    yield stack_words(result)
    yield ""
    yield from launcher_lines(result)
    yield from (f"the verdicts differ: {each}" for each in result.disagreements)
    yield ""
    yield from time_lines(result.profile)
    yield ""
    cells = counted(result.cells, "cell")
    yield f"harness: {cells} in {result.harness_wall_s} s, {result.harness_cells_per_minute} cells a minute"
    yield (
        f"wall time over the ideal: {result.wall_over_ideal} ({result.harness_wall_s} s over {result.ideal_wall_s} s ="
        f" one import {result.import_s} s + bodies {result.bodies_s} s / {workers})"
    )
    if result.install_warm_cache_s is None:
        yield "install: not measured, --system-torch uses the packages of the host"
    else:
        yield f"install from a warm cache: {result.install_warm_cache_s} s"


def stack_words(result: BenchResult) -> str:
    named = ("torch_build", "transformers", "peft", "bitsandbytes", "accelerate", "nccl", "driver")
    known = (f"{name.removesuffix('_build')} {result.facts[name]}" for name in named if result.facts.get(name))
    return ", ".join(known)


def launcher_lines(result: BenchResult) -> Iterator[str]:
    header = ("launcher", "cells", "median s a cell", "cells a minute", "relative to warm")
    rows = [
        (each.name, str(each.cells), f"{each.median_s:.2f}", f"{each.cells_per_minute:.1f}", f"{each.times:.1f}")
        for each in result.ways
    ]
    if not rows:
        yield "no cell could also be started by a launcher"
        return
    yield f"Cells of {counted(result.ranks, 'rank')}, by launcher:"
    yield from table([header, *rows])
    yield "cells a minute: warm forks run cells on all workers, launchers run them one at a time"


def time_lines(profile: TimeProfile) -> Iterator[str]:
    if not profile.cells:
        yield "no single-stage cell reported its timings"
        return
    yield f"Time of a warm cell by part, median of {counted(profile.cells, 'cell')}, slowest rank of each part:"
    parts = [(part, f"{seconds:.3f}") for part, seconds in profile.parts.items()]
    waits = [(f"({part})", f"{seconds:.3f}") for part, seconds in profile.beside.items() if seconds]
    yield from table([("part", "s"), *parts, *waits])
    if profile.nccl_s:
        times = ", ".join(f"{name} {seconds:.2f}" for name, seconds in profile.nccl_s.items())
        yield f"time to create a communicator, as NCCL reports it, in seconds: {times}"
    if profile.late:
        names = ", ".join(f"{name} ({cells})" for name, cells in profile.late.items())
        yield f"modules that ranks imported after the fork, with the number of cells: {names}"


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        numbers = (word.rjust(width) for word, width in zip(rest, widths[1:], strict=True))
        yield "  ".join(("  " + first.ljust(widths[0]), *numbers)).rstrip()
