"""Writes files whole, so that an interruption leaves the old content."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from matrix import documents


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Text is compressed if the name ends in ``.gz``; bytes are written as they are.
    """
    if isinstance(content, str):
        content = documents.compressed([content]) if path.suffix == ".gz" else content.encode()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
