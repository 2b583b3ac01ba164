"""The scripts that show findings without this project, and the record of their runs.

``matrix/known/reproducers/`` has one script per finding, named after its id; those of behaviour by design have a folder
of their own. A script prints one line with the value that it found and the value that it expected, and its exit code is
its answer. ``reproducers.json.gz`` keeps the runs.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from matrix.documents import read_or_empty
from matrix.run.outcome import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER: Final = Path(__file__).with_name("reproducers")
FILE: Final = "reproducers.json.gz"
SCHEMA: Final = 1
RIGHT_CODE, SHOWN_CODE, CANNOT_RUN_CODE = 0, 1, 77  # 77 is the exit code of a skipped test in Automake


class Answer(StrEnum):
    RIGHT = "right"
    SHOWN = "shown"
    CANNOT_RUN = "cannot run"
    UNCLEAR = "unclear"  # another exit code, a signal or a timeout


def answer_of(exit_code: int | None) -> Answer:
    """The answer of a script; ``exit_code`` is None if it ran out of time."""
    known = {RIGHT_CODE: Answer.RIGHT, SHOWN_CODE: Answer.SHOWN, CANNOT_RUN_CODE: Answer.CANNOT_RUN}
    return Answer.UNCLEAR if exit_code is None else known.get(exit_code, Answer.UNCLEAR)


class ScriptRun(Stored):
    """One run of a script in the environment of a version set.

    ``line`` is the line with the found and the expected value or, if the script has none, the last line it printed.
    """

    finding: str
    script: str
    sha256: str
    set: str
    lock: str
    exit_code: int | None
    line: str
    seconds: float
    on: datetime
    hardware: str

    @property
    def answer(self) -> Answer:
        return answer_of(self.exit_code)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.finding, self.set, self.hardware

    def is_outdated_by(self, newer: ScriptRun) -> bool:
        """Tell if a newer run on the same set is of another version of the script."""
        return (self.finding, self.set) == (newer.finding, newer.set) and self.sha256 != newer.sha256


class ScriptRecord(Stored):
    """The newest run of each script on each version set and hardware."""

    schema_: Literal[1] = Field(default=SCHEMA, alias="schema")
    runs: tuple[ScriptRun, ...] = ()

    def of(self, finding: str) -> tuple[ScriptRun, ...]:
        return tuple(each for each in self.runs if each.finding == finding)

    def with_runs(self, new: Iterable[ScriptRun]) -> ScriptRecord:
        """The record with further runs.

        Each replaces an earlier one of its set and hardware, and those of its set on other hardware that are of another
        version of the script.
        """
        runs = {each.key: each for each in self.runs}
        for run in new:
            runs = {key: each for key, each in runs.items() if not each.is_outdated_by(run)} | {run.key: run}
        return ScriptRecord(runs=tuple(runs[key] for key in sorted(runs)))


def scripts(folder: Path = FOLDER) -> Mapping[str, Path]:
    """The script of each finding, by its id."""
    return {path.stem: path for path in sorted(folder.rglob("*.py"))}


def place(finding: str) -> str:
    """The path of a finding's script in the folder of scripts; a script that does not exist would be at the top."""
    script = scripts().get(finding, FOLDER / f"{finding}.py")
    return script.relative_to(FOLDER).as_posix()


def digest(script: Path) -> str:
    return sha256(script.read_bytes()).hexdigest()


def read(path: Path) -> ScriptRecord:
    """Read a record; a missing file is an empty one.

    Raises:
        UserError: the file cannot be read, or is no such document.
    """
    return read_or_empty(ScriptRecord, path, what="record of reproducers", instead="folder")


def text(record: ScriptRecord) -> str:
    return record.model_dump_json(by_alias=True, indent=1) + "\n"
