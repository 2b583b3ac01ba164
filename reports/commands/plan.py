"""``ftmatrix plan``: lists the cells of a run without running them.

Exit codes: 0 listed, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json

import typer

from matrix.run import request
from matrix.versions import sets as version_sets
from reports.commands.options import (
    AsJson,
    Device,
    Offline,
    Profile,
    Sets,
    SystemPython,
    SystemTorch,
    Versions,
    Where,
)
from reports.render import plan_text


def plan(
    sets: Sets = "",
    where: Where = "",
    profile: Profile = "",
    device: Device = "auto",
    versions: Versions = version_sets.PACKAGED,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
    as_json: AsJson = False,
) -> None:
    """List the cells that `run` with the same options would run, and estimate the time from past runs."""
    asked = request.Asked(
        sets=sets,
        where=where,
        profile=profile,
        device=device,
        versions=versions,
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
    )
    asked.check()
    found = request.plan_of(asked)
    typer.echo(json.dumps(found.as_json(), indent=1) if as_json else "\n".join(plan_text.lines(found)))
