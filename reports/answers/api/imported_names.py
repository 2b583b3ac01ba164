"""Answers for names that code imports, and for model types, whose modules have the same names."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from matrix.api_map.lookup import DEFINITIONS, defined_anywhere, moved_to
from matrix.api_map.query import Having
from reports.answers.api.name_description import (
    MOST_MOVED,
    described,
    differs,
    is_everywhere,
    is_there,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.query import ApiMap
    from reports.answers.api.name_answer import NameAnswer, NameQuestion

MOST_DEFINITIONS: Final = 10


def of_import(question: NameQuestion) -> NameAnswer | None:
    """Answer for a name or a module that a message says to be missing from a module."""
    missing, api = question.missing, question.api
    if not missing.owner:
        return of_word(question) or of_class(question)
    package = missing.owner.partition(".")[0]
    if package not in api.packages:
        return None
    path = f"{missing.owner}.{missing.name}"
    found = of_module(path, api) if missing.kind == "module" else api.having(path)
    if found.unknown and not found.known:
        return None
    if not found.known:
        path = next(spelt_alike(path, api), path)
        found = api.having(path)
    if not found.known and missing.kind == "import" and not is_module(missing.owner, api):
        return of_class(question) or described(path, found, question)  # a long line may be cut in the module's name
    if is_there(found, question):
        # A module that is half imported lacks its names until its import ends.
        return None if "partially initialized" in missing.line else described(path, found, question, contradicts=True)
    # A name that left a package's root seldom has another place, and looking for it takes a quarter of a second.
    moved = moved_to(api, package, missing.name)[:MOST_MOVED] if "." in missing.owner else []
    return described(path, found, question, moved=tuple(moved))


def is_module(path: str, api: ApiMap) -> bool:
    """Tell if some release has a module, or what may be one."""
    package = path.partition(".")[0]
    return path in api.tables[package].modules() or api.having(path).known


def of_module(path: str, api: ApiMap) -> Having:
    """Return the releases that have a module. The map lists all modules of what it reads."""
    found = api.having(path)
    if found.known or next(iter(api.tables[found.package].names(found.package).get("*", ())), None) is None:
        return found
    return Having(path=path, package=found.package, versions=(), unknown=(), ranges=())


def spelt_alike(path: str, api: ApiMap) -> Iterator[str]:
    """Yield names of the same module that differ in upper and lower case only."""
    module, _, name = path.rpartition(".")
    package = module.partition(".")[0]
    for other in api.tables[package].names(module):
        if other.lower() == name.lower() and other != name:
            yield f"{module}.{other}"


def of_word(question: NameQuestion) -> NameAnswer | None:
    """Answer for a name of which the log does not say where it should come from: some releases of a package have it."""
    missing, api = question.missing, question.api
    for package in api.packages:
        if package != "torch" and api.tables[package].names(package).get(missing.name):
            found = api.having(f"{package}.{missing.name}")
            if differs(found, question):
                return described(found.path, found, question)
    return None


def of_class(question: NameQuestion) -> NameAnswer | None:
    """Answer for a name of which the module is not known: of its package, of those in the traceback, or of any."""
    missing, api = question.missing, question.api
    package = missing.owner.partition(".")[0]
    others = () if package else (*question.user_packages, *api.packages)
    searched = [each for each in (package, *others) if each in api.packages and each != "torch"]
    exported = (f"{each}.{missing.name}" for each in searched if api.tables[each].names(each).get(missing.name))
    defined = islice(defined_anywhere(api, missing.name, list(dict.fromkeys(searched)), DEFINITIONS), MOST_DEFINITIONS)
    for paths in (exported, defined):
        found = max(map(api.having, paths), key=lambda each: len(each.versions), default=None)
        if found is not None and differs(found, question):
            return described(found.path, found, question)
    return None


def of_model_type(question: NameQuestion) -> NameAnswer | None:
    """Answer for a model type: its module has the same name, without the suffix of a part such as ``_text``."""
    missing, api = question.missing, question.api
    name = missing.name.replace("-", "_")
    for each in dict.fromkeys((name, name.rpartition("_")[0])):
        found = api.having(f"{missing.owner}.{each}") if each else None
        if found is not None and found.known:
            there = is_there(found, question) or is_everywhere(found, api)
            return None if there else described(f"{missing.owner}.{each}", found, question)
    return None
