"""Reads documents that ftmatrix wrote, with errors for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from matrix.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

Document = TypeVar("Document", bound=BaseModel)


def read_or_empty(model: type[Document], path: Path, *, what: str, instead: str) -> Document:
    """Read a document; a missing file is an empty one. ``instead`` is what the user should name otherwise.

    Raises:
        UserError: the file cannot be read, or is no such document.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return model()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name another {instead}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"{path}: no {what}: {first['msg']}; name another {instead}") from None
