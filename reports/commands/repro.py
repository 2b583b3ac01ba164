"""``ftmatrix repro``: writes one script that reproduces a red cell, for a bug report.

Exit codes: 0 written (with ``--check``: it shows the cell's failure), 1 with ``--check`` it does not, 2 bad input, such
as a cell that is not red or that the generator does not cover.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.run import machine
from matrix.versions.uv import on_this_machine
from reports.answers import knowledge
from reports.answers.scripts.known_cause import known_cause
from reports.answers.scripts.repro_cells import outcome_of, pins_of
from reports.answers.scripts.repro_script import reproducer
from reports.commands.options import Results, ResultsDevice, results_device
from reports.commands.runs import repro_record as records
from reports.commands.runs.repro_confirm import confirmed
from reports.render.files import write_whole
from reports.render.text.issue_text import issue

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome
    from matrix.versions.uv import Uv
    from reports.answers.scripts.repro_script import Reproducer
    from reports.commands.runs.repro_confirm import Confirmation

NOT_REPRODUCED = 1


@dataclass(frozen=True, kw_only=True)
class ReproRequest:
    """The options of the command. ``record`` is the file that keeps the result of ``--check``."""

    cell: str
    issue: bool
    check: bool
    record: Path | None
    results: Path
    device: str


@dataclass(frozen=True, kw_only=True)
class ReproText:
    """A script, or the text of a bug report; ``same`` is None if the script was not run."""

    name: str
    text: str
    same: bool | None


def repro(
    cell: Annotated[str, typer.Argument(help="Red cell, SET__CASE, as the report names it.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File or folder to write to.", show_default="stdout")
    ] = None,
    issue: Annotated[bool, typer.Option("--issue", help="Write the text of a bug report that has the script.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run the script in a fresh environment and compare its failure.")
    ] = False,
    record: Annotated[Path | None, typer.Option(help="With --check, file that keeps the result.")] = None,
    results: Results = knowledge.PUBLISHED,
    device: ResultsDevice = "auto",
) -> None:
    """Write a red cell as one short script with exact pins that `uv run` can execute."""
    request = ReproRequest(
        cell=cell, issue=issue, check=check, record=record, results=results, device=results_device(device)
    )
    reproducer = make(request, say=lambda text: typer.echo(text, err=True))
    if out is not None:
        typer.echo(write(reproducer, out), err=True)
    else:
        typer.echo(reproducer.text, nl=False)
    raise typer.Exit(NOT_REPRODUCED if reproducer.same is False else 0)


def make(request: ReproRequest, *, say: Callable[[str], None], uv: Uv | None = None) -> ReproText:
    """Return the script or the report, and, with ``check``, whether the script shows the cell's failure.

    Raises:
        UserError: the cell does not exist, is not red, or is not covered by the generator.
    """
    if request.record is not None and not request.check:
        raise UserError("--record keeps the result of --check; add --check")
    matrix = knowledge.load(request.results, device=request.device)
    outcome = outcome_of(request.cell, matrix)
    script = reproducer(outcome, pins_of(outcome, matrix))
    confirmation = run_script(script, outcome, request, say=say, uv=uv) if request.check else None
    text = script.text
    if request.issue:
        known = known_cause(outcome, script.pins.six)
        say(f"File it in {known.repository}: {known.why}.")
        text = issue(
            script, outcome, matrix, log=confirmation.log if confirmation is not None and confirmation.same else ""
        )
    name = script.name.removesuffix(".py") + ".md" if request.issue else script.name
    return ReproText(name=name, text=text, same=None if confirmation is None else confirmation.same)


def run_script(
    script: Reproducer, outcome: Outcome, request: ReproRequest, *, say: Callable[[str], None], uv: Uv | None
) -> Confirmation:
    """Run a script in a fresh environment, report the comparison, and record it if the request names a file."""
    say(f"Running {script.name} in a fresh environment; packages that are not cached are downloaded.")
    confirmation = confirmed(script, outcome, uv=uv or on_this_machine(cache_folder()))
    say(f"{'Same failure' if confirmation.same else 'DIFFERENT result'}, after {confirmation.seconds:.0f} s.")
    say(f"  cell:   {confirmation.cell_error}")
    say(f"  script: {confirmation.script_error}")
    if request.record is not None:
        now = datetime.now(UTC).replace(microsecond=0)
        records.add(
            records.ran(script, confirmation, hardware=machine.hardware(request.device), now=now), request.record
        )
    return confirmation


def write(reproducer: ReproText, out: Path) -> Path:
    """Write to a file, or to a folder under the script's own name; return the path.

    Raises:
        UserError: the file cannot be written.
    """
    path = out / reproducer.name if out.is_dir() else out
    try:
        write_whole(path, reproducer.text)
    except OSError as error:
        raise UserError(f"{path}: cannot write the file ({error.strerror}); name another file") from None
    return path
