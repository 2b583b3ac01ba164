"""Explains the names that a log misses from the map of the API."""

from __future__ import annotations

import builtins
from itertools import islice
from typing import TYPE_CHECKING, Final

from reports.answers.api.imported_names import of_class, of_import, of_model_type, of_word
from reports.answers.api.members import of_argument, of_attribute, of_field, of_value
from reports.answers.api.missing_names import missing_names
from reports.answers.api.name_answer import NameQuestion
from reports.answers.api.new_parameters import of_count, of_new_parameter
from reports.answers.api.requirement_messages import explain_requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.api_map.query import ApiMap
    from reports.answers.api.missing_names import MissingName
    from reports.answers.api.name_answer import NameAnswer
    from reports.answers.diagnosis.symptoms import Symptom

BUILT_IN: Final = frozenset({*vars(builtins), "NoneType", "function", "module", "method"})
MOST_LOOKED_UP: Final = 6
ANSWERS: Final[Mapping[str, Callable[[NameQuestion], NameAnswer | None]]] = {
    "import": of_import,
    "module": of_import,
    "word": of_word,
    "class": of_class,
    "model": of_model_type,
    "attribute": of_attribute,
    "argument": of_argument,
    "value": of_value,
    "field": of_field,
    "required": of_new_parameter,
    "count": of_count,
}  # by kind of missing name


def explain_name(failure: Symptom, versions: Mapping[str, str], api: ApiMap) -> NameAnswer | None:
    """Return what the map knows of the name that ended a job, or else of another one that its log misses.

    A name that some release has goes before a requirement that is not met, and this before a name that none has.
    """
    unknown: NameAnswer | None = None
    for missing in islice(dict.fromkeys(missing_names(failure)), MOST_LOOKED_UP):
        found = answer(missing, versions, api)
        if found is not None and found.known:
            return found
        unknown = unknown or found
    return explain_requirement(failure, versions, api) or unknown


def answer(missing: MissingName, versions: Mapping[str, str], api: ApiMap) -> NameAnswer | None:
    """Return what the map knows of a missing name; None if it concerns no package of the map, or nothing differs."""
    if missing.owner in BUILT_IN:
        return None
    return ANSWERS[missing.kind](NameQuestion(missing=missing, versions=versions, api=api))
