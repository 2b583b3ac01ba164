"""Fixes as stored: for a red cell the nearest green cell, with its proof."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, ValidationError, model_validator

from cases.space.renamed import current_option
from matrix.errors import UserError
from matrix.run.outcome import CaseId, CellName, Scalar, Stamp, Stored

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = 2


class Kind(StrEnum):
    """The kinds of fixes in order of preference; the search tries the next kind if it finds nothing."""

    SETTINGS = "settings"  # the same set, method, quantisation, strategy, and precision of base and computation
    VERSIONS = "versions"  # the same case on another set
    ALTERNATIVE = "alternative"  # the same set; part of the wish is given up
    NONE = "none"  # nothing green within what was tried


class Change(Stored):
    """Of an option, or of a package's version."""

    name: str
    old: Scalar
    new: Scalar

    @model_validator(mode="before")
    @classmethod
    def under_present_names(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "name" not in data:
            return data
        name, old = current_option(data["name"], data.get("old"))
        return {**data, "name": name, "old": old, "new": current_option(data["name"], data.get("new"))[1]}


class Fix(Stored):
    """``set`` and ``case`` are red; ``to_set`` and ``to_case`` are green, as often as ``runs`` says.

    ``witnesses`` are cells (``set__case``), one for each change: the fix without that change. They are red, but for
    those in ``blocked``: of these the set cannot be resolved or installed. Of a single change the red cell itself is
    the witness. ``minimal`` says whether every change has its witness: it is False where the search ran out of
    environments before. A move of versions brings along what was resolved for ``to_set``; ``changes`` name only what
    the sets pin. ``tried`` counts the cells that were looked at, ``within`` says which they were, or why there was
    nothing to look for. ``modules`` are those of the case code that took part in the red and the green cell.
    """

    set: str
    case: CaseId
    kind: Kind
    to_set: str = ""
    to_case: CaseId = ""
    changes: tuple[Change, ...] = ()
    runs: int = 0
    witnesses: tuple[CellName, ...] = ()
    blocked: tuple[CellName, ...] = ()
    minimal: bool = True
    tried: int
    within: str
    modules: Stamp = ""


class Fixes(Stored):
    """The fixes that a search found on one machine."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    generated: datetime
    device: str
    hardware: str
    code: str
    fixes: tuple[Fix, ...]


def read(path: Path) -> Fixes:
    """The fixes in a file.

    Raises:
        UserError: it is missing, or no such document.
    """
    try:
        return Fixes.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); `ftmatrix fix` writes one") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"{path}: no document of fixes: {first['msg']}; `ftmatrix fix` writes one") from None
