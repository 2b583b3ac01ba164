"""Answers for methods whose parameters a release changed: the caller, or an override, does not know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.api_map.lookup import paths_of
from matrix.api_map.measured.combinations import minor_releases
from reports.answers.api.name_description import described, differs
from reports.answers.api.user_classes import all_bases, usual_bases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.query import ApiMap
    from matrix.api_map.view import View
    from reports.answers.api.name_answer import NameAnswer, NameQuestion


def of_new_parameter(question: NameQuestion) -> NameAnswer | None:
    """Answer for a parameter that a release added and the caller does not pass."""
    missing, api = question.missing, question.api
    for path in paths_of(api, missing.owner.removesuffix(".__init__"), question.user_packages):
        found = api.having(f"{path}({missing.name})", question.versions)
        if differs(found, question, installed=False):
            return described(f"{path}({missing.name})", found, question, overrides=True)
    return None


def of_count(question: NameQuestion) -> NameAnswer | None:
    """Answer for a method that takes fewer arguments than it gets: it overrides one that a release gave more."""
    missing, api = question.missing, question.api
    owner, _, method = missing.owner.rpartition(".")
    for path in paths_of(api, owner, question.user_packages) if owner else ():
        for name in lacking_parameters(path, method, question):
            found = api.having(f"{path}.{method}({name})", question.versions)
            return described(f"{path}.{method}({name})", found, question)
    for base in usual_bases(owner) or all_bases() if owner else ():
        for name in newest_parameters(f"{base}.{method}", api):
            answered = of_override(question, name)
            if answered is not None:
                return answered
    return None


def lacking_parameters(path: str, method: str, question: NameQuestion) -> Iterator[str]:
    """Yield the parameters of a base's method, in another package, that a class's method does not have.

    If the log states no version of the class's package, the newest release without such a parameter counts.
    """
    api = question.api
    package = path.partition(".")[0]
    place = api.place(package, question.versions.get(package, ""))
    others = {name: api.versions(name)[-1] for name in api.packages if name != package}
    newest_first = reversed([api.place(package, each.version) or 0 for each in minor_releases(api.releases[package])])
    for each in newest_first if place is None else (place,):
        yield from missing_in(api.as_of(package, each, {**others, **question.versions}), path, method)


def missing_in(view: View, path: str, method: str) -> Iterator[str]:
    """Yield the parameters of a base's method, in another package, that a class's own method lacks in a view."""
    found, _ = view.find(path)
    own = view.parameters(f"{path}.{method}")
    for base in view.lineage(found) if found is not None and found.kind == "class" else ():
        if base is not None and own is not None and not base.module.startswith(f"{path.partition('.')[0]}."):
            names = [each.name for each in view.parameters(f"{base.path}.{method}") or ()]
            yield from (name for name in names if name not in {each.name for each in own} and "*" not in name)


def newest_parameters(path: str, api: ApiMap) -> Iterator[str]:
    """Yield the parameters of a method that some releases lack, as the newest release has them."""
    package = path.partition(".")[0]
    for each in api.as_of(package, len(api.releases[package]) - 1).parameters(path) or ():
        found = api.having(f"{path}({each.name})")
        if "*" not in each.name and found.known and found.versions[0] != api.versions(package)[0]:
            yield each.name


def of_override(question: NameQuestion, parameter: str) -> NameAnswer | None:
    """Answer for a method of the user's class that lacks a parameter which a package's method has.

    The name of the class tells what it extends, or else the traceback which package calls the method: messages of
    Python 3.9 name no class. If no usual base has the method, its other methods may pass the parameter on, as
    ``Trainer.compute_loss`` does to ``forward``.
    """
    missing, api = question.missing, question.api
    owner, _, method = missing.owner.rpartition(".")
    is_packages = next(paths_of(api, owner), None) if owner else is_exported(method, api)
    bases = usual_bases(owner) or [each for each in all_bases() if each.partition(".")[0] in question.user_packages]
    if method.startswith("__") or is_packages:
        return None
    methods = (f"{each}.{method}" for each in bases)
    calling = [each for each in all_bases() if each.partition(".")[0] in question.user_packages]
    passing = (path for each in calling for path in methods_with(each, parameter, api))
    for path in (*methods, *passing):
        found = api.having(f"{path}({parameter})")
        if found.known and found.versions[0] != api.versions(found.package)[0]:
            return described(f"{path}({parameter})", found, question, overrides=True)
    return None


def is_exported(name: str, api: ApiMap) -> bool:
    return any(api.tables[package].names(package).get(name) for package in api.packages)


def methods_with(path: str, parameter: str, api: ApiMap) -> Iterator[str]:
    """Yield the methods of a class that have a parameter in the newest release: they may pass it on."""
    package = path.partition(".")[0]
    newest = len(api.releases[package]) - 1
    view = api.as_of(package, newest)
    found, _ = view.find(path)
    for name, rows in api.tables[package].names(found.module).items() if found is not None else ():
        if found is not None and name.startswith(f"{found.name}."):
            signatures = (row.detail.split("\n") for row in rows if row.kind == "method" and row.last == newest)
            if any(parameter in (line.partition("=")[0] for line in lines) for lines in signatures):
                yield f"{path}.{name.removeprefix(f'{found.name}.')}"
