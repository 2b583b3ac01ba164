"""``ftmatrix doctor``: checks an environment and the configuration of a job against the results.

Exit codes: 0 no known problem, 1 at least one (with ``--write``: at least one is left), 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from matrix.errors import UserError
from reports.answers.knowledge import PUBLISHED
from reports.commands.options import AUTO, AsJson, Results
from reports.results.wording import plain

if TYPE_CHECKING:
    from matrix.run.outcome import SetRecord
    from matrix.versions.sets import VersionSet
    from reports.answers.checkup.doctor import Checkup

PROBLEMS = 1


def doctor(
    python: Annotated[
        Path | None,
        typer.Option(
            "--python", help="Interpreter or virtual environment to check.", show_default="the active environment"
        ),
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(
            "--versions",
            help="Versions to check instead of an environment: 'torch==2.8.0,peft==0.17.1', a requirements file, lock "
            "or environment.yml, a version set's key, or - for the output of pip freeze.",
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            help="File of the job: of accelerate, TRL, transformers, Axolotl, LLaMA-Factory, DeepSpeed or PEFT, or a "
            "script with its command line; repeatable.",
        ),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Apply the change to the files, if it is verified.")] = False,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="With --write, also accept a change that drops part of the job.")
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            help="Device of the results to use: cpu (gloo), cuda (NCCL), or auto: cuda if the environment's torch is "
            "built for GPUs and the job does not run on a CPU.",
        ),
    ] = AUTO,
    results: Results = PUBLISHED,
    as_json: AsJson = False,
) -> None:
    """Check an environment and a job's configuration: known failures, their causes, the smallest verified change."""
    from matrix.api_map.query import ApiMap
    from matrix.environments.host import package_folders
    from matrix.versions import sets
    from reports.answers import knowledge
    from reports.answers.api.environment_names import environment_names
    from reports.answers.api.release_changes import with_changed_defaults
    from reports.answers.checkup import given_versions, installed
    from reports.answers.checkup.doctor import examine
    from reports.answers.configuration import configs, job
    from reports.answers.fixes import remedies
    from reports.answers.judgement.known_errors import MeasuredErrors
    from reports.render.text import doctor_text

    if write and not config:
        raise UserError("--write needs configuration files to change; name them with --config")
    files = [each for path in config or () for each in configs.read(path)]
    if write and not any(each.editable for each in files):
        raise UserError(f"{files[0].path}: --write changes no command lines; put their options into a file and give it")
    if versions is not None and python is not None:
        raise UserError("--python and --versions both name the versions to check; give one of them")
    grids = knowledge.by_device(results) if device == AUTO else {device: knowledge.load(results, device=device)}
    if versions is not None:
        columns: tuple[VersionSet | SetRecord, ...] = (
            *sets.load(),
            *(column for each in grids.values() for column in each.sets),
        )
        environment = given_versions.read(versions, columns, sys.stdin.buffer)
    else:
        environment = installed.read(python, inspect=package_folders)
    found_job = job.combine(files, environment.versions) if files else None
    fixes = {name: remedies.load(results, device=name) for name in grids}
    known = MeasuredErrors(grids["cpu"]) if found_job is not None and "cpu" in grids else None
    names = environment_names(environment.versions, ApiMap())
    checkup = names.added_to(examine(environment, found_job, grids, fixes, known))
    checkup = with_changed_defaults(checkup, ApiMap())
    repair = checkup.chosen(give_up=give_up)
    written = configs.write(repair.texts) if write and repair else ()
    if as_json:
        typer.echo(json.dumps(doctor_text.document(checkup, written), indent=1))
    else:
        texts = (*doctor_text.lines(checkup), *doctor_text.written_lines(checkup, written, write=write))
        typer.echo(plain("\n".join(texts)))  # names and keys come from files
    raise typer.Exit(0 if checkup.sound or solved(checkup, written) else PROBLEMS)


def solved(checkup: Checkup, written: tuple[Path, ...]) -> bool:
    """Tell whether the written change solves every problem; a change of settings solves those of the job only."""
    repair = checkup.chosen(give_up=True)
    return bool(written) and repair is not None and repair.complete and all(each.of_job for each in checkup.problems)
