"""``ftmatrix plan``: lists the cells of a run without running them.

Exit codes: 0 listed, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from matrix.run import both, request, run_plan
from matrix.run import plan as plan_module
from matrix.run.execute import Suite
from matrix.run.scripts import user_scripts
from matrix.run.staleness import staleness
from matrix.versions import sets as version_sets
from reports.answers import knowledge
from reports.commands.options import (
    AsJson,
    Offline,
    Profile,
    Repeat,
    RunDevice,
    Scripts,
    Sets,
    SystemPython,
    SystemTorch,
    Versions,
    Where,
    Workers,
)
from reports.render.text import plan_text
from reports.results.outcome_rows import whole


def plan(
    sets: Sets = "",
    where: Where = "",
    profile: Profile = "",
    device: RunDevice = "auto",
    versions: Versions = version_sets.PACKAGED,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
    scripts: Scripts = None,
    workers: Workers = None,
    repeat: Repeat = None,
    as_json: AsJson = False,
    stale: Annotated[
        Path | None,
        typer.Option(
            "--stale",
            help="Instead, count the cells of this run, or of published results, whose case code has changed since.",
        ),
    ] = None,
) -> None:
    """List the cells that `run` with the same options would run, and estimate the time from past runs."""
    if stale is not None:
        result = staleness(tuple(map(whole, knowledge.outcomes(stale))), Suite().code)
        typer.echo(json.dumps(asdict(result), indent=1) if as_json else "\n".join(plan_text.stale_lines(result)))
        return
    run_request = request.RunRequest(
        sets=sets,
        where=where,
        profile=profile,
        device=device,
        versions=versions,
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
        workers=workers,
        repeats=repeat,
        suite=Suite(scripts=user_scripts.load_all(scripts or ())),
    )
    for renaming in plan_module.renamings(where):
        typer.echo(renaming, err=True)
    if device == request.BOTH:
        show_both(run_request, as_json=as_json)
        return
    run_request.check()
    planned = run_plan.plan_of(run_request)
    typer.echo(json.dumps(planned.as_json(), indent=1) if as_json else "\n".join(plan_text.lines(planned)))


def show_both(run_request: request.RunRequest, *, as_json: bool) -> None:
    """Print the plan of each device; as JSON, by device.

    Raises:
        UserError: bad input, or this machine has no usable GPU.
    """
    parts = both.split(run_request, say=partial(typer.echo, err=True))
    plans = {each.device: run_plan.plan_of(each, work) for each, work in parts}
    if as_json:
        typer.echo(json.dumps({name: each.as_json() for name, each in plans.items()}, indent=1))
        return
    for name, each in plans.items():
        typer.echo("\n".join((f"on {name}:", *plan_text.lines(each), "")))
