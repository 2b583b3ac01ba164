"""``ftmatrix doctor``: what is known red in an environment and the configurations of a job, and what to change.

Exit codes: 0 nothing is known to be wrong, 1 problems were found (and, with ``--write``, are left), 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from matrix.errors import UserError
from reports.answers.knowledge import PUBLISHED
from reports.results.wording import plain

if TYPE_CHECKING:
    from reports.answers.checkup.doctor import Checkup

PROBLEMS, AUTO = 1, "auto"


def doctor(
    python: Annotated[
        Path | None,
        typer.Option("--python", help="Interpreter or environment.", show_default="the active environment"),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", help="File of accelerate, TRL, Axolotl or LLaMA-Factory; repeatable, of one job."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the change into the files, if it was verified.")
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="With --write: also a change that gives up part of what was asked for.")
    ] = False,
    device: Annotated[
        str, typer.Option("--device", help="Whose results count: cpu (gloo), cuda, or auto: GPUs' where there are any.")
    ] = AUTO,
    results: Annotated[
        Path, typer.Option("--results", help="Folder of results.", show_default="the published ones")
    ] = PUBLISHED,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Read an environment and configurations: what is known red, why, and the smallest verified change."""
    from reports.answers import knowledge
    from reports.answers.checkup import installed
    from reports.answers.checkup.doctor import examine
    from reports.answers.configuration import configs, job
    from reports.answers.fixes import remedies
    from reports.render import doctor_text

    if write and not config:
        raise UserError("--write changes configurations: give --config the files of the job")
    files = [configs.read(path) for path in config or ()]
    there = installed.read(python)
    grids = knowledge.by_device(results) if device == AUTO else {device: knowledge.load(results, device=device)}
    asked = job.of(files, there.versions) if files else None
    fixes = {name: remedies.load(results, device=name) for name in grids}
    found = examine(there, asked, grids, fixes)
    repair = found.chosen(give_up=give_up)
    written = configs.write(repair.texts) if write and repair else ()
    if as_json:
        typer.echo(json.dumps(doctor_text.document(found, written), indent=1))
    else:
        said = (*doctor_text.lines(found), *doctor_text.written_lines(found, written, asked=write))
        typer.echo(plain("\n".join(said)))  # names and keys are a stranger's
    raise typer.Exit(0 if found.sound or solved(found, written) else PROBLEMS)


def solved(found: Checkup, written: tuple[Path, ...]) -> bool:
    """Whether what was written leaves no problem: a change of settings heals what a job runs into, and nothing else."""
    return bool(written) and all(each.of_job for each in found.problems)
