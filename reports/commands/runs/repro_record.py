"""``reproducers.json``: the reproducers that were run in a fresh environment, with their failures.

``schema`` is the version of the document. An entry of ``reproducers`` has: ``error`` and ``message``, the type and the
message of the script's failure; ``wanted``, the failure of the cell; ``same``, true if they agree (for a failed check:
the same check missed the same bound); ``lines`` and ``script``, the length and the start of the SHA-256 of the script;
``seconds``, its duration with the installation; ``on``, the machine.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from matrix.documents import read_or_empty
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.run.outcome import Stored
from reports.render.files import write_whole

if TYPE_CHECKING:
    from reports.answers.scripts.repro_script import Reproducer
    from reports.commands.runs.repro_confirm import Confirmation

SCHEMA: Final = 1
PUBLISHED: Final = Path(__file__).parents[2] / "published" / "reproducers.json"


class ReproducerRun(Stored):
    """One run of a reproducer."""

    set: str
    case: str
    error: str
    message: str
    wanted: str
    same: bool
    lines: int
    script: str
    seconds: float
    checked: datetime
    on: str

    @property
    def cell(self) -> str:
        return str(CellKey(self.set, self.case))


class ReproducerRecord(Stored):
    """The newest run of each reproducer."""

    schema_: Literal[1] = Field(default=SCHEMA, alias="schema")
    reproducers: tuple[ReproducerRun, ...] = ()


def digest(reproducer: Reproducer) -> str:
    return sha256(reproducer.text.encode()).hexdigest()[:12]


def ran(reproducer: Reproducer, confirmation: Confirmation, *, hardware: str, now: datetime) -> ReproducerRun:
    error, _, message = confirmation.script_error.partition(": ")
    version_set, case = CellKey.parse(reproducer.cell)
    return ReproducerRun(
        set=version_set,
        case=case,
        error=error,
        message=message,
        wanted=confirmation.cell_error,
        same=confirmation.same,
        lines=len(reproducer.text.splitlines()),
        script=digest(reproducer),
        seconds=round(confirmation.seconds, 1),
        checked=now,
        on=hardware,
    )


def read(path: Path = PUBLISHED) -> ReproducerRecord:
    """Read a record; a missing file is an empty one.

    Raises:
        UserError: the file cannot be read, or is no such document.
    """
    return read_or_empty(ReproducerRecord, path, what="record of reproducers", instead="file")


def add(new: ReproducerRun, path: Path) -> None:
    """Add a run to a file; it replaces an earlier run of the same cell.

    Raises:
        UserError: the file holds something else, or cannot be written.
    """
    records = {each.cell: each for each in read(path).reproducers} | {new.cell: new}
    text = ReproducerRecord(reproducers=tuple(records[cell] for cell in sorted(records))).model_dump_json(
        by_alias=True, indent=1
    )
    try:
        write_whole(path, text + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from None
