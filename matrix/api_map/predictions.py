"""Predicts what users' first imports do in given versions, as the import matrix measures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.imports.steps import IMPORTS
from matrix.api_map.imports import ImportPrediction, Miss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.api_map.query import ApiMap


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """The missing names of one set of versions: those that break the import of a package, and those of functions."""

    at_import: Mapping[str, tuple[Miss, ...]]  # by package
    later: tuple[Miss, ...]


def predict(
    api: ApiMap, versions: Mapping[str, str], libraries: Mapping[str, str] | None = None, *, later: bool = True
) -> Predicted:
    """Return what importing each package of a set of versions misses, and what functions of the loaded modules miss.

    Without a package, its imports are not predicted. ``libraries`` are the versions of all other installed modules, if
    they are known. ``later``: look at functions as well.
    """
    view = api.at(versions, libraries)
    present: dict[str, bool] = {}
    effects: dict[str, tuple[Miss | str, ...]] = {}
    held: dict[tuple[str, str], bool] = {}
    found: dict[str, tuple[Miss, ...]] = {}
    executed: dict[str, None] = {}
    for package, paths in IMPORTS.items():
        if package in view.places:
            prediction = ImportPrediction(api=api, view=view, present=present, effects=effects, held=held)
            for path in paths:
                if "." not in path or api.having(path).known:
                    prediction.import_name(path)
            found[package] = tuple(dict.fromkeys(prediction.misses))
            executed |= prediction.executed
    functions: dict[Miss, None] = {}
    if later:
        prediction = ImportPrediction(api=api, view=view, present=present, effects=effects, held=held)
        for module in executed:
            functions.update(dict.fromkeys(prediction.used_later(module)))
    return Predicted(at_import=found, later=tuple(functions))
