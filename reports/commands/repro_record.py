"""``reproducers.json``: which reproducers were run in a fresh environment, and what they said.

``schema`` is the document's version. Of each cell in ``reproducers``: ``error`` is the type, and ``message`` what came
with it, as the script said it; ``wanted`` is what the cell had said, ``same`` whether they agree (of a measurement:
the same check missed the same bound); ``lines`` and ``script`` (the start of its SHA-256) tell which script it was,
``seconds`` how long it took with its installation, ``on`` the machine.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, ValidationError

from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.run.outcome import Stored
from reports.render.write import write_whole

if TYPE_CHECKING:
    from reports.answers.scripts.repro_script import Reproducer
    from reports.commands.repro_confirm import Confirmation

SCHEMA: Final = 1
PUBLISHED: Final = Path(__file__).parents[1] / "published" / "reproducers.json"


class ReproducerRun(Stored):
    """One reproducer, run once."""

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
    """The newest run of each."""

    schema_: Literal[1] = Field(default=SCHEMA, alias="schema")
    reproducers: tuple[ReproducerRun, ...] = ()


def digest(made: Reproducer) -> str:
    return sha256(made.text.encode()).hexdigest()[:12]


def ran(made: Reproducer, found: Confirmation, *, hardware: str, now: datetime) -> ReproducerRun:
    error, _, message = found.said.partition(": ")
    version_set, case = CellKey.parse(made.cell)
    return ReproducerRun(
        set=version_set,
        case=case,
        error=error,
        message=message,
        wanted=found.wanted,
        same=found.same,
        lines=len(made.text.splitlines()),
        script=digest(made),
        seconds=round(found.seconds, 1),
        checked=now,
        on=hardware,
    )


def read(path: Path = PUBLISHED) -> ReproducerRecord:
    """What a file records; nothing, if there is no such file.

    Raises:
        UserError: it cannot be read, or is no such document.
    """
    try:
        return ReproducerRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return ReproducerRecord()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name another file") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"{path}: no record of reproducers: {first['msg']}; name another file") from None


def add(new: ReproducerRun, path: Path) -> None:
    """Put a run into a file, in the place of the earlier one of its cell.

    Raises:
        UserError: the file holds something else, or cannot be written.
    """
    kept = {each.cell: each for each in read(path).reproducers} | {new.cell: new}
    text = ReproducerRecord(reproducers=tuple(kept[cell] for cell in sorted(kept))).model_dump_json(
        by_alias=True, indent=1
    )
    try:
        write_whole(path, text + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from None
