"""Explains a missing name from the map: which releases have it, who uses it, and the smallest move of versions."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from matrix.api_map.lookup import classes_with, moved_to, paths_of
from matrix.api_map.view import Presence
from reports.answers.api.measured import with_measurements
from reports.answers.api.moves import Move, moves
from reports.answers.api.users import NameUser, users_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from matrix.api_map.query import ApiMap, Having
    from reports.answers.api.missing_names import MissingName

FIRST_OWNERS: Final = ("transformers", "trl", "peft", "accelerate")  # whose classes users extend
EXTENDED: Final = (  # classes that users extend
    *("transformers.PreTrainedModel", "transformers.PretrainedConfig", "transformers.PreTrainedTokenizerBase"),
    *("transformers.Trainer", "transformers.TrainingArguments", "trl.SFTTrainer", "trl.GRPOTrainer", "peft.PeftModel"),
)
MOST_MOVED: Final = 2
BUILT_IN: Final = frozenset({*vars(builtins), "NoneType", "function", "module", "method"})


@dataclass(frozen=True, kw_only=True)
class NameAnswer:
    """What the map knows of a missing name.

    Attributes:
        path: the name.
        provider: the package that should have it.
        line: the line of the log.
        ranges: the first and last release of each range that has it; none: no release of the map has it.
        newest: the newest release of the map.
        installed: the provider's version in the log; empty if it states none.
        users: packages that use the name, with the ranges of their releases.
        overrides: the name is a parameter that ``users`` pass to methods which the provider, or the user, overrides.
        renamed: the new name, as the provider states it.
        instead: fields of the configuration class that have the name, or its new name, in the version of the log.
        moved: where the newest release has a name of the same word.
        moves: the smallest moves of one package, the best first.
    """

    path: str
    provider: str
    line: str
    ranges: tuple[tuple[str, str], ...]
    newest: str
    installed: str = ""
    users: tuple[NameUser, ...] = ()
    overrides: bool = False
    renamed: str = ""
    instead: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()

    @property
    def known(self) -> bool:
        return bool(self.ranges)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.path,
            "package": self.provider,
            "line": self.line,
            "releases": [list(each) for each in self.ranges],
            "installed": self.installed,
            "users": [each.as_json() for each in self.users],
            "overrides": self.overrides,
            "renamed": self.renamed,
            "instead": list(self.instead),
            "moved": list(self.moved),
            "moves": [each.as_json() for each in self.moves],
            "basis": "read from the releases",
        }


@dataclass(frozen=True, kw_only=True)
class NameQuestion:
    """A missing name, the versions of the log, and the map."""

    missing: MissingName
    versions: Mapping[str, str]
    api: ApiMap
    modules: tuple[str, ...] = field(default=())

    @property
    def user_packages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.partition(".")[0] for each in self.missing.users))


def answer(missing: MissingName, versions: Mapping[str, str], api: ApiMap) -> NameAnswer | None:
    """Return what the map knows of a missing name; None if it concerns no package of the map, or nothing differs."""
    if missing.owner in BUILT_IN:
        return None
    return ANSWERS[missing.kind](NameQuestion(missing=missing, versions=versions, api=api))


def of_attribute(question: NameQuestion) -> NameAnswer | None:
    return of_member(question, f".{question.missing.name}") or of_inherited(question)


def of_argument(question: NameQuestion) -> NameAnswer | None:
    name = question.missing.name
    return of_member(question, f"({name})") or of_override(question, name)


def of_import(question: NameQuestion) -> NameAnswer | None:
    missing, api = question.missing, question.api
    package = missing.owner.partition(".")[0]
    if package not in api.packages:
        return None
    path = f"{missing.owner}.{missing.name}"
    found = api.having(path)
    if found.unknown and not found.known:
        return None
    if is_there(found, question):
        return None
    # A name that left a package's root seldom has another place, and looking for it takes a quarter of a second.
    moved = moved_to(api, package, missing.name)[:MOST_MOVED] if "." in missing.owner else []
    return described(path, found, question, moved=tuple(moved))


def of_member(question: NameQuestion, suffix: str) -> NameAnswer | None:
    """Answer for a member or parameter of a class or function that the message names."""
    missing, api = question.missing, question.api
    owner = missing.owner.removesuffix(".__init__").removesuffix(".__new__")
    for path in paths_of(api, owner, question.user_packages) if owner else ():
        found = api.having(f"{path}{suffix}", question.versions)
        if found.known and not is_there(found, question):
            return described(f"{path}{suffix}", found, question)
    return None


def of_inherited(question: NameQuestion) -> NameAnswer | None:
    """Answer for an attribute of a class of the user's that only some releases of a usual base class have."""
    missing, api = question.missing, question.api
    if not missing.owner or next(paths_of(api, missing.owner), None):
        return None
    for base in EXTENDED:
        found = api.having(f"{base}.{missing.name}", question.versions)
        # Where a model has __getattr__, the map cannot tell that an attribute is missing, but the log can.
        is_installed = question.versions.get(found.package, "") in found.versions
        if found.known and not is_installed and not is_everywhere(found, api):
            return described(f"{base}.{missing.name}", found, question)
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


def of_new_parameter(question: NameQuestion) -> NameAnswer | None:
    """Answer for a parameter that a release added and the caller does not pass."""
    missing, api = question.missing, question.api
    for path in paths_of(api, missing.owner.removesuffix(".__init__"), question.user_packages):
        found = api.having(f"{path}({missing.name})", question.versions)
        if found.known and len(found.versions) < len(api.releases[found.package]):
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
    for path in classes_with(api, method, FIRST_OWNERS[:1]) if owner else ():
        for name in newest_parameters(path, api):
            answered = of_override(question, name)
            if answered is not None:
                return answered
    return None


def lacking_parameters(path: str, method: str, question: NameQuestion) -> Iterator[str]:
    """Yield the parameters of a base's method, in another package, that a class's method does not have."""
    api = question.api
    package = path.partition(".")[0]
    place = api.place(package, question.versions.get(package, ""))
    view = api.as_of(package, len(api.releases[package]) - 1 if place is None else place, question.versions)
    found, _ = view.find(path)
    own = view.parameters(f"{path}.{method}") or []
    for base in view.lineage(found) if found is not None and found.kind == "class" else ():
        if base is not None and not base.module.startswith(f"{package}."):
            names = [each.name for each in view.parameters(f"{base.path}.{method}") or ()]
            yield from (name for name in names if name not in {each.name for each in own} and "*" not in name)


def newest_parameters(path: str, api: ApiMap) -> Iterator[str]:
    """Yield the parameters of a method that some releases lack, as the newest release has them."""
    package = path.partition(".")[0]
    for each in api.as_of(package, len(api.releases[package]) - 1).parameters(path) or ():
        if "*" not in each.name and api.having(f"{path}({each.name})").versions[0] != api.versions(package)[0]:
            yield each.name


def of_override(question: NameQuestion, parameter: str) -> NameAnswer | None:
    """Answer for a method of the user's class that lacks a parameter which a package's method has."""
    missing, api = question.missing, question.api
    owner, _, method = missing.owner.rpartition(".")
    if not owner or method.startswith("__") or next(paths_of(api, owner), None):
        return None
    for path in classes_with(api, method, FIRST_OWNERS):
        found = api.having(f"{path}({parameter})")
        if found.known and found.versions[0] != api.versions(found.package)[0]:
            return described(f"{path}({parameter})", found, question, overrides=True)
    return None


def is_there(found: Having, question: NameQuestion) -> bool:
    """Tell if the version in the log has the name all the same, so that something else is wrong."""
    place = question.api.place(found.package, question.versions.get(found.package, ""))
    if place is not None:
        return found.admits(question.api.releases[found.package][place].version)
    return is_everywhere(found, question.api)


def is_everywhere(found: Having, api: ApiMap) -> bool:
    return len(found.versions) == len(api.releases[found.package])


def described(
    path: str, found: Having, question: NameQuestion, *, moved: tuple[str, ...] = (), overrides: bool = False
) -> NameAnswer:
    api, versions = question.api, question.versions
    callers = () if overrides else tuple(passing(path, question))
    users = callers or tuple(users_of(path, question.missing, api, versions))
    owner, _, parameter = path.partition("(")
    base, _, member = owner.rpartition(".")
    old = parameter.rstrip(")")
    return NameAnswer(
        path=path,
        provider=found.package,
        line=question.missing.line,
        ranges=found.ranges,
        newest=api.versions(found.package)[-1],
        installed=versions.get(found.package, ""),
        users=users,
        overrides=overrides or bool(callers),
        renamed=api.rename(owner, old) if old else api.rename(base, member) if "." in base else "",
        instead=tuple(dict.fromkeys(fields_instead(path, question)))[:MOST_MOVED] if old else (),
        moved=tuple(each for each in moved if each != path),
        moves=measured_moves(found, users, question, overrides=overrides),
    )


def measured_moves(
    found: Having, users: tuple[NameUser, ...], question: NameQuestion, *, overrides: bool
) -> tuple[Move, ...]:
    smallest = moves(found, users, question.versions, question.api, overrides=overrides)
    if not users:
        return tuple(smallest)
    return tuple(with_measurements(smallest, users[0].package, found.package, question.versions))


def fields_instead(path: str, question: NameQuestion) -> Iterator[str]:
    """Yield the field of ``SFTConfig`` that replaces a parameter of ``SFTTrainer``."""
    owner, _, parameter = path.partition("(")
    name, package = parameter.rstrip(")"), owner.partition(".")[0]
    stem = owner.rpartition(".")[2].removesuffix("Trainer")
    if stem == owner.rpartition(".")[2] or not stem:
        return
    api = question.api
    place = api.place(package, question.versions.get(package, ""))
    view = api.as_of(package, len(api.releases[package]) - 1 if place is None else place, question.versions)
    config = f"{package}.{stem}Config"
    for each in (name, api.rename(config, name)):
        if each and view.presence(f"{config}({each})") is Presence.THERE:
            yield f"{config}({each})"
            return


def passing(path: str, question: NameQuestion) -> Iterator[NameUser]:
    """Yield the packages whose base class has a method's parameter, and therefore pass it to an override."""
    owner, _, parameter = path.partition("(")
    owner, _, method = owner.rpartition(".")
    if not parameter or not question.missing.users or method[:1].isupper():
        return
    api = question.api
    package = owner.partition(".")[0]
    view = api.as_of(package, len(api.releases[package]) - 1, question.versions)
    found, presence = view.find(owner)
    if found is None or presence is not Presence.THERE or found.kind != "class":
        return
    for base in view.lineage(found):
        if base is not None and not base.module.startswith(f"{package}."):
            having = api.having(f"{base.path}.{method}({parameter}")
            if having.known:
                yield NameUser(package=having.package, module=base.module, ranges=having.ranges, how="passes")
                return


ANSWERS: Final[Mapping[str, Callable[[NameQuestion], NameAnswer | None]]] = {
    "import": of_import,
    "module": of_import,
    "model": of_model_type,
    "attribute": of_attribute,
    "argument": of_argument,
    "required": of_new_parameter,
    "count": of_count,
}  # by kind of missing name
