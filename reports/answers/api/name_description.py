"""Describes a name that was found to be missing: its releases, its users, its new name, and moves of versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matrix.api_map.view import Presence
from reports.answers.api.measured import with_measurements
from reports.answers.api.moves import moves
from reports.answers.api.name_answer import NameAnswer
from reports.answers.api.users import NameUser, users_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.query import ApiMap, Having
    from reports.answers.api.moves import Move
    from reports.answers.api.name_answer import NameQuestion

MOST_MOVED: Final = 2


def described(
    path: str,
    found: Having,
    question: NameQuestion,
    *,
    moved: tuple[str, ...] = (),
    overrides: bool = False,
    accepts_any: bool = False,
    contradicts: bool = False,
    read_from: str = "",
) -> NameAnswer:
    """Return the answer for a name and the releases that have it; the flags are those of ``NameAnswer``."""
    api, versions = question.api, question.versions
    callers = () if overrides else tuple(passing(path, question))
    in_own_class = overrides and question.missing.kind != "required"  # nobody else's code is to blame
    users = callers or (() if in_own_class else tuple(users_of(path, question.missing, api, versions)))
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
        left_out=question.missing.kind == "required",
        accepts_any=accepts_any,
        contradicts=contradicts,
        read_from=read_from,
        renamed=api.rename(owner, old) if old else api.rename(base, member) if "." in base else "",
        instead=tuple(dict.fromkeys(fields_instead(path, question)))[:MOST_MOVED] if old else (),
        moved=tuple(each for each in moved if each != path),
        moves=() if contradicts else measured_moves(found, users, question, overrides=overrides),
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


def is_there(found: Having, question: NameQuestion) -> bool:
    """Tell if the version in the log has the name all the same, so that something else is wrong.

    Where the map cannot tell, as in classes with ``__getattr__``, the log does: the name is not there.
    """
    place = question.api.place(found.package, question.versions.get(found.package, ""))
    if place is not None:
        return question.api.releases[found.package][place].version in found.versions
    return is_everywhere(found, question.api)


def differs(found: Having, question: NameQuestion, *, installed: bool = True) -> bool:
    """Tell if only some releases have a name, and (``installed``) not the one in the log."""
    return found.known and not is_everywhere(found, question.api) and not (installed and is_there(found, question))


def is_everywhere(found: Having, api: ApiMap) -> bool:
    return len(found.versions) == len(api.releases[found.package])
