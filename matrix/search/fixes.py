"""Stores fixes: for each red cell the nearest green cell, and its proof."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, ValidationError, model_validator

from cases.space.renamed import current_option
from matrix.documents import content
from matrix.errors import UserError
from matrix.run.outcome import CaseId, CellName, Scalar, Stamp, Stored

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = 2
ALONE: Final = "only the fix found earlier ran again"  # begins what such a search was ``within``


class Kind(StrEnum):
    """The kinds of fixes in order of preference; the search tries the next kind if it finds nothing."""

    SETTINGS = "settings"  # the same set, method, quantisation, strategy, and precision of base and computation
    VERSIONS = "versions"  # the same case on another set
    ALTERNATIVE = "alternative"  # the same set, without a part of the requested configuration
    NONE = "none"  # no green cell among those tried


class Change(Stored):
    """A change of an option, or of a package's version."""

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
    """A red cell (``set``, ``case``) and a green one (``to_set``, ``to_case``), which ran ``runs`` times.

    ``witnesses`` has one cell (``set__case``) for each change: the fix without that change. Witnesses are red, except
    those in ``blocked``, whose set cannot be resolved or installed. The witness of a single change is the red cell.
    ``minimal`` is False if a change has no witness because the search ran out of environments. ``changes`` names the
    pins that differ; other packages of ``to_set`` may differ, too. ``tried`` counts the measured cells; ``within``
    describes them, or why there were none. ``modules`` are the modules of the case code that both cells used.
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
    """Read the fixes in a file.

    Raises:
        UserError: the file is missing, or has no fixes.
    """
    try:
        return Fixes.model_validate_json(content(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); `ftmatrix fix` writes one") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"{path}: not a file of fixes: {first['msg']}; `ftmatrix fix` writes one") from None
