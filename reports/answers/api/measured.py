"""Adds to moves of versions what the import matrix measured of the two packages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from matrix.api_map.measured import import_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.api_map.measured.import_results import MeasuredImports
    from reports.answers.api.moves import Move


def with_measurements(
    moves: Iterable[Move], user: str, provider: str, versions: Mapping[str, str], folder: Path = import_results.FOLDER
) -> Iterator[Move]:
    """Yield moves with the measurement that imported both packages at the versions that a move leads to.

    ``user`` takes a name from ``provider``. Other packages may have had other versions in the measurement.
    """
    results: Sequence[MeasuredImports] | None = None
    for move in moves:
        after = {**versions, move.package: move.version}
        if user in after and provider in after:
            results = list(import_results.load(folder)) if results is None else results
            yield replace(move, measured=measurement(results, user, provider, after))
        else:
            yield move


def measurement(results: Sequence[MeasuredImports], user: str, provider: str, after: Mapping[str, str]) -> str:
    """Return in words the measurement of two packages at exact versions; empty if there is none, or if it failed."""
    for each in results:
        same = all(each.versions.get(name) == after[name] for name in (user, provider))
        if same and each.imports(user):
            return f"Python {each.python}, torch {each.torch}, {each.measured}"
    return ""
