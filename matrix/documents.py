"""Reads documents that ftmatrix wrote, with errors for the user. A name that ends in ``.gz`` means a compressed one."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Document = TypeVar("Document", bound=BaseModel)


def compressed(parts: Iterable[str]) -> bytes:
    """Return text as gzip, with the same bytes on every machine and at every time. Its parts are read one by one."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as file:
        for part in parts:
            file.write(part.encode())
    return packed.getvalue()


def content(path: Path) -> bytes:
    """Return the content of a file without its compression.

    Raises:
        OSError: the file cannot be read, or its compression is damaged.
    """
    data = path.read_bytes()
    try:
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (EOFError, zlib.error) as error:
        raise gzip.BadGzipFile(f"damaged gzip file ({error})") from None


def read_or_empty(model: type[Document], path: Path, *, what: str, instead: str) -> Document:
    """Read a document; a missing file is an empty one. ``instead`` is what the user should name otherwise.

    Raises:
        UserError: the file cannot be read, or is no such document.
    """
    try:
        return model.model_validate_json(content(path))
    except FileNotFoundError:
        return model()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); name another {instead}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"{path}: no {what}: {first['msg']}; name another {instead}") from None
