"""Recognises a job that ended for a reason outside the fine-tuning stack, from ``outside.toml`` and the last frame.

A full disk, a scheduler or a damaged file may make the stack fail later in the log; the first reason counts.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from matrix.errors import UserError
from reports.answers.diagnosis.frames import Origin
from reports.answers.diagnosis.tracebacks import RETRY, is_log_record

if TYPE_CHECKING:
    from reports.answers.diagnosis.symptoms import Symptom

PACKAGED: Final = Path(__file__).with_name("outside.toml")


class OutsideCause(BaseModel):
    """A reason outside the stack: the lines that show it, and its name in a sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    pattern: str
    says: str
    anywhere: bool = False

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class OutsideEnd:
    """The reason for which a job ended, and the line that shows it."""

    id: str
    says: str
    line: str

    @property
    def sentence(self) -> str:
        return f"no known failure of the stack: the log ends in {self.says}: {self.line}"


@cache
def load(path: Path = PACKAGED) -> tuple[OutsideCause, ...]:
    """Return the reasons of a file.

    Raises:
        UserError: the file cannot be read, or a row is malformed.
    """
    try:
        tables: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["cause"]
        rows = tuple(OutsideCause.model_validate(table) for table in tables)
        for row in rows:
            row.regex  # noqa: B018 - compiles it
    except (OSError, KeyError, tomllib.TOMLDecodeError, ValidationError, re.error) as error:
        raise UserError(f"{path}: no table of causes outside the stack ({error}); correct the file") from None
    return rows


def end(failure: Symptom) -> OutsideEnd | None:
    """Return the reason outside the stack for which a pasted log ends; None if its lines show none."""
    if failure.options is not None:  # a measured cell ran no code of a user's
        return None
    found = failure.log_failures
    for row in load():
        for match in row.regex.finditer(failure.bare):
            number = failure.bare.count("\n", 0, match.start())
            if number in found.failure_at or (row.anywhere and is_fatal(failure, number)):
                return OutsideEnd(id=row.id, says=row.says, line=failure.lines[number].strip())
    return None


def is_fatal(failure: Symptom, number: int) -> bool:
    """Tell if a line outside the tracebacks that died may end the job: no warning, retry or recovered error."""
    line = failure.bare_lines[number]
    return not (is_log_record(line) or RETRY.search(line) or number in failure.log_failures.recovered)


def foreign_code(failure: Symptom) -> OutsideEnd | None:
    """Return the user's or another library's code in which a pasted log's traceback died; None if it did elsewhere."""
    death = failure.death
    if failure.options is not None or death is None or death.culprit is None:
        return None
    match death.origin:
        case Origin.USER:
            says = "the user's own code"
        case Origin.OTHER:
            says = death.culprit.package
        case _:
            return None
    path = "/".join(re.split(r"[/\\\\]", death.culprit.path)[-2:])
    where = f"{path}, in {death.culprit.function}" if death.culprit.function else path
    return OutsideEnd(id=death.origin.value, says=f"{says} ({where})", line=death.message)
