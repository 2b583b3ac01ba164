"""Runs cells once more, with other environment variables or another suite, for what their ranks write into folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.evidence import Evidence
from matrix.run import pipeline
from matrix.run.execute import Bench
from matrix.run.store import WORK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.context import RunContext
    from matrix.run.execute import Suite
    from matrix.versions.sets import VersionSet


def job_folders(
    version_set: VersionSet, cases: Mapping[str, Case], ctx: RunContext, *, suite: Suite, variables: Mapping[str, str]
) -> Iterator[tuple[str, Path]]:
    """The folder of each cell of one set, as it ends; none if the set cannot be installed, which is reported."""
    ctx.watcher.stage(version_set.key, "locating")
    prepared = pipeline.prepare(version_set, ctx)
    environment = prepared if isinstance(prepared, Evidence) else pipeline.install(prepared, ctx)
    if isinstance(environment, Evidence):
        ctx.say(f"{version_set.key}: no cell was located: {environment.reason}")
        return
    bench = Bench(
        scratch=pipeline.new_folder(ctx.store.directory.absolute() / WORK, f"{version_set.key}-locate-"),
        device=ctx.device,
        workers=ctx.workers,
        suite=suite,
        limits=ctx.limits,
        cold=ctx.cold,
        more={**ctx.variables, **variables},
    )
    sources = {name: str(pipeline.carried(ctx, each.source, each.begun)) for name, each in cases.items() if each.source}
    order = sorted(cases, key=lambda name: -cases[name].ranks)
    try:
        for report in bench.run(order, environment, sources=sources):
            if report.name in cases:
                yield report.name, bench.job_folder(report.name)
    finally:
        environment.release()
