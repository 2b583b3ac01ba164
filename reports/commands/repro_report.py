"""What ``ftmatrix repro`` was asked for, in order: find the cell, write its script, run it, tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.run import machine
from matrix.versions.uv import on_this_machine
from reports.answers import knowledge
from reports.answers.scripts.repro_cells import outcome_of, pins_of
from reports.answers.scripts.repro_script import reproducer
from reports.commands import repro_record as records
from reports.commands.repro_confirm import confirmed
from reports.render.issue_text import issue
from reports.render.write import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome
    from matrix.versions.uv import Uv
    from reports.answers.scripts.repro_script import Reproducer
    from reports.commands.repro_confirm import Confirmation

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """``record`` is where a check is written to."""

    cell: str
    issue: bool
    check: bool
    record: Path | None
    results: Path
    device: str


@dataclass(frozen=True, kw_only=True)
class Made:
    """A script, or the text of a report; ``same`` is None where it was not run."""

    name: str
    text: str
    same: bool | None


def make(asked: Asked, *, say: Callable[[str], None], uv: Uv | None = None) -> Made:
    """The text that was asked for, and whether the script shows what the cell did.

    Raises:
        UserError: no such cell, or not a red one, or one that the generator does not cover.
    """
    if asked.record is not None and not asked.check:
        raise UserError("--record keeps what a check showed: give --check as well")
    if asked.device not in DEVICES:
        raise UserError(f"--device {asked.device!r}: results are of {' or '.join(DEVICES)}")
    matrix = knowledge.load(asked.results, device=asked.device)
    outcome = outcome_of(asked.cell, matrix)
    script = reproducer(outcome, pins_of(outcome, matrix))
    found = checked(script, outcome, asked, say=say, uv=uv) if asked.check else None
    text = script.text
    if asked.issue:
        text = issue(script, outcome, matrix, log=found.log if found is not None and found.same else "")
    name = script.name.removesuffix(".py") + ".md" if asked.issue else script.name
    return Made(name=name, text=text, same=None if found is None else found.same)


def checked(
    script: Reproducer, outcome: Outcome, asked: Asked, *, say: Callable[[str], None], uv: Uv | None
) -> Confirmation:
    say(f"Running {script.name} in a fresh environment: its packages are downloaded if they are not in the cache.")
    found = confirmed(script, outcome, uv=uv or on_this_machine(cache_folder()))
    say(f"{'The same' if found.same else 'NOT the same'}, in {found.seconds:.0f} s.")
    say(f"  the cell:   {found.wanted}")
    say(f"  the script: {found.said}")
    if asked.record is not None:
        now = datetime.now(UTC).replace(microsecond=0)
        records.add(records.ran(script, found, hardware=machine.hardware(asked.device), now=now), asked.record)
    return found


def write(made: Made, out: Path) -> Path:
    """Into a file, or into a folder under its own name; the file.

    Raises:
        UserError: it cannot be written.
    """
    path = out / made.name if out.is_dir() else out
    try:
        write_whole(path, made.text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from None
    return path
