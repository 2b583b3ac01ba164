"""Keeps the digests of modules in the cache, so that only the first run after a change parses the case code."""

from __future__ import annotations

import contextlib
import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix.run import code_digest
from matrix.run.store import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.code_digest import CaseCode

FILE: Final = "digests.json"


def digest(code: CaseCode, cache: Path) -> str:
    """The digest of all modules; those whose source is in the cache are not parsed, here and in later stamps.

    A cache that cannot be read or written only costs time.
    """
    path, method = cache / FILE, method_digest()
    stored = read(path, method)
    sources = {
        name: sha256(source).hexdigest()
        for name, source in code.sources.items()
        if not name.startswith(code_digest.SCRIPT)
    }
    code.known.update({name: stored[source] for name, source in sources.items() if source in stored})
    found = code.digest
    known = {source: code.known[name] for name, source in sources.items() if name in code.known}
    if known != stored:
        with contextlib.suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
            write_json(path, {"method": method, "digests": known})
    return found


def read(path: Path, method: str) -> Mapping[str, str]:
    """The stored digests by the SHA-256 of a source; none that another version of the harness computed."""
    try:
        content = json.loads(path.read_bytes())
        return dict(content["digests"]) if content["method"] == method else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def method_digest() -> str:
    """The digest of the code that computes digests."""
    return sha256(Path(code_digest.__file__).read_bytes()).hexdigest()
