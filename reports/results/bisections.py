"""Stores answers of bisections beside published results, and loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from matrix.bisect.answer import BisectAnswer
from matrix.errors import UserError
from reports.render.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "bisections"  # in a folder of published results


def load(results: Path) -> tuple[BisectAnswer, ...]:
    """Return the recorded bisections of a folder of results, by case and sets; none if it has none.

    Raises:
        UserError: a file cannot be read, or is no answer of a bisection.
    """
    return tuple(loaded(path) for path in sorted((results / FOLDER).glob("*.json")))


def loaded(path: Path) -> BisectAnswer:
    try:
        return BisectAnswer.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); restore or remove it") from None
    except ValidationError:
        raise UserError(f"{path}: not the answer of a bisection; record it again with `ftmatrix bisect`") from None


def record(answer: BisectAnswer, results: Path) -> Path:
    """Store an answer, in place of an earlier one of the same cell and sets; return its file.

    Raises:
        UserError: the folder cannot be written.
    """
    parts = (answer.case, answer.good, answer.bad, answer.device)
    path = results / FOLDER / f"{'__'.join(parts)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, answer.model_dump_json(by_alias=True, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); choose another --record") from None
    return path
