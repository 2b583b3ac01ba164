"""Draws the measurements of ``bench`` as text with two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.experiments.bench import BenchResult
    from matrix.experiments.profile import TimeProfile


def lines(found: BenchResult) -> Iterator[str]:
    yield f"{found.set} on {found.hardware}, {found.workers} workers, medians of {found.repeats}"
    yield stack_words(found)
    yield ""
    yield from side_by_side(found)
    yield from (f"the verdicts differ: {each}" for each in found.disagreements)
    yield ""
    yield from where_it_goes(found.profile)
    yield ""
    yield f"harness: {found.cells} cells in {found.harness_wall_s} s, {found.harness_cells_per_minute} cells a minute"
    yield (
        f"wall time over the ideal: {found.wall_over_ideal} ({found.harness_wall_s} s over {found.ideal_wall_s} s ="
        f" one import {found.import_s} s + bodies {found.bodies_s} s / {found.workers} workers)"
    )
    if found.install_warm_cache_s is None:
        yield "install: not measured, --system-torch uses the packages of the host"
    else:
        yield f"install from a warm cache: {found.install_warm_cache_s} s"


def stack_words(found: BenchResult) -> str:
    named = ("torch_build", "transformers", "peft", "bitsandbytes", "accelerate", "nccl", "driver")
    known = (f"{name.removesuffix('_build')} {found.facts[name]}" for name in named if found.facts.get(name))
    return ", ".join(known)


def side_by_side(found: BenchResult) -> Iterator[str]:
    header = ("way of starting", "cells", "median s a cell", "cells a minute", "times the warm one")
    rows = [
        (each.name, str(each.cells), f"{each.median_s:.2f}", f"{each.cells_per_minute:.1f}", f"{each.times:.1f}")
        for each in found.ways
    ]
    if not rows:
        yield "no cell could also be started by a launcher"
        return
    yield f"Cells of {found.ranks} ranks, each way of starting them:"
    yield from table([header, *rows])
    yield "cells a minute: by warm forks, of the whole run with its workers; by a launcher, one after the other"


def where_it_goes(profile: TimeProfile) -> Iterator[str]:
    if not profile.cells:
        yield "no single-stage cell reported its timings"
        return
    yield f"Time of a warm cell by part, median of {profile.cells} cells, slowest rank of each part:"
    parts = [(part, f"{seconds:.3f}") for part, seconds in profile.parts.items()]
    beside = [(f"({part})", f"{seconds:.3f}") for part, seconds in profile.beside.items() if seconds]
    yield from table([("part", "s"), *parts, *beside])
    if profile.nccl_s:
        times = ", ".join(f"{name} {seconds:.2f}" for name, seconds in profile.nccl_s.items())
        yield f"of which NCCL reports for creating a communicator, in seconds: {times}"
    if profile.late:
        names = ", ".join(f"{name} ({cells})" for name, cells in profile.late.items())
        yield f"modules that ranks imported after the fork, with the number of cells: {names}"


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        numbers = (word.rjust(width) for word, width in zip(rest, widths[1:], strict=True))
        yield "  ".join(("  " + first.ljust(widths[0]), *numbers)).rstrip()
