"""Answers for attributes of objects, and arguments of classes and functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matrix.api_map.lookup import DEFINITIONS, defined_anywhere, paths_of
from matrix.api_map.query import Having, runs
from reports.answers.api.name_description import described, differs, is_everywhere, is_there
from reports.answers.api.new_parameters import of_override
from reports.answers.api.passed_on import of_passed_on
from reports.answers.api.user_classes import all_bases, usual_bases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.query import ApiMap
    from reports.answers.api.name_answer import NameAnswer, NameQuestion

# Packages whose classes derive from those of others, with the suffix of these classes.
ARGUMENTS: Final = "transformers.TrainingArguments"
TORCH: Final = "torch"
DERIVING: Final = (("trl", "Config"), ("trl", "Trainer"))


def of_attribute(question: NameQuestion) -> NameAnswer | None:
    return of_member(question, f".{question.missing.name}") or of_inherited(question) or of_derived(question)


def of_value(question: NameQuestion) -> NameAnswer | None:
    """Answer for a value of an enumeration, whose member has the same name in upper case."""
    return of_member(question, f".{question.missing.name.upper()}")


def of_argument(question: NameQuestion) -> NameAnswer | None:
    name = question.missing.name
    return (
        of_member(question, f"({name})")
        or of_override(question, name)
        or of_passed_on(question)
        or of_unstated(question)
        or of_stated_version(question)
        or of_no_release(question)
    )


def of_field(question: NameQuestion) -> NameAnswer | None:
    """Answer for an option of a command line or a configuration, which a class of fields does not have."""
    for path in (ARGUMENTS, *derived_classes(question.api, "trl", "Config")):
        found = question.api.having(f"{path}({question.missing.name})", question.versions)
        if differs(found, question) and (
            path == ARGUMENTS or is_derived(path, ARGUMENTS, found.versions[-1], question.api)
        ):
            return described(found.path, found, question)
    return None


def of_member(question: NameQuestion, suffix: str) -> NameAnswer | None:
    """Answer for a member or parameter of a class or function that the message names."""
    candidates = [question.api.having(f"{path}{suffix}", question.versions) for path in paths(question)]
    known = [each for each in candidates if each.known and not is_there(each, question)]
    lacking = [each for each in known if may_lack(each, suffix, question)] or known
    called = [each for each in lacking if any(each.path.startswith(f"{user}.") for user in question.missing.users)]
    best = (called or lacking)[:1]
    # Classes of the same name that differ: it takes the traceback to tell which one is meant.
    if not best or (not called and any(each.ranges != best[0].ranges for each in lacking if each.path.count(".") > 1)):
        return None
    return described(best[0].path, best[0], question)


def may_lack(found: Having, suffix: str, question: NameQuestion) -> bool:
    """Tell if a release, or that of the log, has a class or function without the member or parameter.

    A class that had it from its first release on is not the one that a message is about, if others have its name.
    """
    owner = question.api.having(found.path.removesuffix(suffix), question.versions)
    without = set(owner.versions) - set(found.versions)
    installed = question.versions.get(found.package, "")
    return installed in without if installed in question.api.versions(found.package) else bool(without)


def paths(question: NameQuestion) -> Iterator[str]:
    """Yield what a message may mean by a class or function; one of torch, if no other package has the name."""
    owner = question.missing.owner.removesuffix(".__init__").removesuffix(".__new__")
    if owner:
        named = False
        for path in paths_of(question.api, owner, question.user_packages):
            named = True
            yield path
        if not named:
            yield from defined_anywhere(question.api, owner, [TORCH], DEFINITIONS)


def of_unstated(question: NameQuestion) -> NameAnswer | None:
    """Answer for an argument that no release states, but some accept with any other."""
    for path in paths(question):
        for callee in (path, f"{path}.__new__"):
            found = question.api.having(f"{callee}({question.missing.name})", question.versions)
            taking = accepting(found, callee, question)
            if taking is not None and differs(taking, question):
                return described(found.path, taking, question, accepts_any=True)
    return None


def of_no_release(question: NameQuestion) -> NameAnswer | None:
    """Answer for an argument that no release accepts, as far as the map can tell."""
    api = question.api
    for path in paths(question):
        found = api.having(f"{path}({question.missing.name})", question.versions)
        is_certain = len(found.unknown) < len(api.releases[found.package])
        is_module = api.having(f"{path}.forward").known  # whose ``from_pretrained`` passes on what it does not know
        if not found.known and is_certain and not is_module:
            return described(found.path, found, question)
    return None


def accepting(found: Having, callee: str, question: NameQuestion) -> Having | None:
    """Return the releases in which a function accepts any keyword; None if it has no such releases, or no others."""
    api = question.api
    versions = api.versions(found.package)
    takes: list[bool] = []
    for place in range(len(versions)):
        parameters = api.as_of(found.package, place, question.versions).parameters(callee)
        takes.append(any(each.name.startswith("**") and each.name != "**?" for each in parameters or ()))
    if found.known or not any(takes):
        return None
    return Having(
        path=found.path,
        package=found.package,
        versions=tuple(each for each, yes in zip(versions, takes, strict=True) if yes),
        unknown=(),
        ranges=tuple((versions[first], versions[last]) for first, last in runs(takes)),
    )


def of_stated_version(question: NameQuestion) -> NameAnswer | None:
    """Answer for an argument that the log's version accepts, or all of the map: another one ran."""
    for path in paths(question):
        found = question.api.having(f"{path}({question.missing.name})", question.versions)
        is_exported = path.count(".") == 1
        if differs(found, question, installed=False) or (is_exported and is_everywhere(found, question.api)):
            return described(found.path, found, question, contradicts=True)
    return None


def of_inherited(question: NameQuestion) -> NameAnswer | None:
    """Answer for an attribute of a class of the user's that only some releases of a usual base class have."""
    missing, api = question.missing, question.api
    if not missing.owner or next(paths_of(api, missing.owner), None):
        return None
    is_of_words = "_" in missing.name.strip("_")  # which few classes of users name alike
    for base in usual_bases(missing.owner) or (all_bases() if is_of_words else ()):
        if not question.may_concern(base.partition(".")[0]):
            continue
        found = api.having(f"{base}.{missing.name}", question.versions)
        if differs(found, question):
            return described(f"{base}.{missing.name}", found, question)
    return None


def of_derived(question: NameQuestion) -> NameAnswer | None:
    """Answer for an attribute that no release of a class has, but a class derived from it in another package.

    The other package reads the attribute of an object that the job made from the base, such as ``TrainingArguments``
    for trl's ``SFTConfig``.
    """
    missing, api = question.missing, question.api
    bases = [path for path in paths(question) if path.count(".") == 1]
    for package, suffix in DERIVING if bases else ():
        if suffix == "Trainer" and package not in question.user_packages:
            continue  # nobody makes a base trainer and expects a derived one, except that package's code
        for path in derived_classes(api, package, suffix):
            found = api.having(f"{path}.{missing.name}")
            if found.known and is_derived(path, bases[0], found.versions[-1], api) and is_of_user(path, missing.users):
                return described(found.path, found, question, read_from=bases[0])
    return None


def derived_classes(api: ApiMap, package: str, suffix: str) -> Iterator[str]:
    """Yield the classes that a package exports, those for supervised fine-tuning first."""
    names = [each for each in api.tables[package].names(package) if each.endswith(suffix) and "." not in each]
    yield from (f"{package}.{each}" for each in sorted(names, key=lambda name: (not name.startswith("SFT"), name)))


def is_derived(path: str, base: str, version: str, api: ApiMap) -> bool:
    package = path.partition(".")[0]
    place = api.place(package, version)
    view = api.as_of(package, place or 0)
    found, _ = view.find(path)
    wanted, _ = view.find(base)
    return found is not None and wanted is not None and any(each == wanted for each in view.lineage(found))


def is_of_user(path: str, users: tuple[str, ...]) -> bool:
    """Tell if the innermost module of a traceback may work with a class: ``trl.trainer.dpo_trainer``, ``DPOConfig``."""
    stem = path.rpartition(".")[2].removesuffix("Config").removesuffix("Trainer").lower()
    return not users or any(stem in each.rpartition(".")[2] for each in users)
