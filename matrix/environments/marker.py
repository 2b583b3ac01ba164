"""The marker file of an environment. It is written last: an environment without a marker is incomplete."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA: Final = 1
MARKER: Final = "ftmatrix.json"


@dataclass(frozen=True, kw_only=True)
class Marker:
    """A description of a complete environment.

    Attributes:
        key: the version set.
        lock: digest of the lock.
        backend: the build of torch.
        python: minor version, such as ``3.11``.
        runner: identity of the pytest that cells run under; empty if the host provides it.
        installed: version by normalised package name.
        unverified: packages whose RECORD was wrong right after they were installed.
    """

    key: str
    lock: str
    backend: str
    python: str
    runner: str
    installed: Mapping[str, str]
    unverified: tuple[str, ...] = ()


def read_marker(root: Path) -> Marker | None:
    """The marker of an environment; None if it has none, or one of another version of the harness."""
    try:
        raw = json.loads((root / MARKER).read_text(encoding="utf-8"))
        if raw.pop("schema") != SCHEMA:
            return None
        return Marker(**{**raw, "unverified": tuple(raw.get("unverified", ()))})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_marker(root: Path, marker: Marker) -> None:
    """Write the marker in one step: a reader sees all of it or none."""
    new = root / f"{MARKER}.new"
    new.write_text(json.dumps({"schema": SCHEMA, **asdict(marker)}, indent=1), encoding="utf-8")
    new.replace(root / MARKER)
