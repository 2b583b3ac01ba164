"""Says for each release of a package whether it has a name, or whether that depends on a release of another package.

``trl.SFTConfig(eval_strategy)`` is a field of ``transformers.TrainingArguments``, its base, so a release of TRL has it
with some releases of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from matrix.api_map.view import BUILT_IN_BASES, UNKNOWN_BASE, Presence, View
from reports.answers.check.run_time_names import may_be_made

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.api_map.query import ApiMap
    from matrix.api_map.view import FoundName, Parameter


Bases = tuple[str, ...]  # names in other packages, of which one has to be there
Answer = Presence | Bases
ATTRIBUTE, FIELD = "attribute", "field"  # kinds of names
FOLLOWERS: Final = frozenset({"trl"})  # packages whose classes derive from those of transformers


@dataclass(frozen=True, kw_only=True)
class RememberingView(View):
    """A view that looks up each name and each list of parameters once."""

    found: dict[str, tuple[FoundName | None, Presence]] = field(default_factory=dict)
    listed: dict[str, list[Parameter] | None] = field(default_factory=dict)

    def find(self, path: str, depth: int = 0) -> tuple[FoundName | None, Presence]:
        if depth:
            return super().find(path, depth)
        if path not in self.found:
            self.found[path] = super().find(path)
        return self.found[path]

    def parameters(self, path: str) -> list[Parameter] | None:
        if path not in self.listed:
            self.listed[path] = super().parameters(path)
        return self.listed[path]


class ReleaseAnswers:
    """Answers for names, each computed once."""

    def __init__(self, api: ApiMap) -> None:
        self.api = api
        self.views: dict[tuple[str, int], View] = {}
        self.answers: dict[str, tuple[Answer, ...]] = {}
        self.replacing: dict[tuple[str, str], set[str]] = {}
        self.meeting: dict[tuple[str, str], set[int]] = {}

    def of(self, package: str) -> range:
        return range(len(self.api.releases.get(package, ())))

    def readable(self, package: str) -> set[int]:
        return {place for place, each in enumerate(self.api.releases.get(package, ())) if not each.unreadable}

    def version(self, package: str, place: int) -> str:
        return self.api.releases[package][place].version

    def view(self, package: str, place: int) -> View:
        """Return a view of one release alone."""
        key = package, place
        if key not in self.views:
            self.views[key] = RememberingView(tables=self.api.tables, places={package: place})
        return self.views[key]

    def having(self, path: str) -> tuple[Answer, ...]:
        """Return the answer of each release of the path's package, in the order of versions.

        A release may set an attribute of objects by ``setattr``, which the map does not show, so none lacks it surely.
        """
        if path not in self.answers:
            package = package_of(path)
            views = [self.view(package, place) for place in self.of(package)]
            answers = tuple(self.answer(path, view) for view in views)
            pairs = zip(answers, views, strict=True)
            is_set = any(each is Presence.THERE and is_attribute(path, view) for each, view in pairs)
            self.answers[path] = tuple(
                Presence.UNKNOWN if is_set and each is Presence.MISSING else each for each in answers
            )
        return self.answers[path]

    def answer(self, path: str, view: View) -> Answer:
        presence = presence_of(path, view)
        if presence is not Presence.UNKNOWN:
            return presence
        name, parenthesis, parameter = path.partition("(")
        rest = f"{parenthesis}{parameter}"
        if parameter and takes_anything(view, name):
            return Presence.UNKNOWN
        found, _ = view.find(name)
        if found is not None and found.kind == "class" and parameter:
            return self.in_bases(found, view, rest)
        owner, _, member = name.rpartition(".")
        holder, _ = view.find(owner) if owner else (None, None)
        if found is None and holder is not None and holder.kind == "class":
            return self.in_bases(holder, view, f".{member}{rest}")
        return Presence.UNKNOWN

    def in_bases(self, owner: FoundName, view: View, rest: str) -> Answer:
        """Return the names in other packages that would do, if every base of a class is known."""
        foreign: dict[str, None] = {}
        waiting, seen, is_certain = [owner], {owner.path}, True
        while waiting:
            current = waiting.pop(0)
            is_certain &= not any(True for _ in view.rows(current.module, f"{current.name}.__getattr__"))
            for base in current.detail.split():
                if base.startswith("@") or base in BUILT_IN_BASES or base in seen:
                    continue
                seen.add(base)
                found, _ = view.find(base)
                if found is not None and found.kind == "class":
                    waiting.append(found)
                elif package_of(base) in self.api.releases and package_of(base) not in view.places:
                    foreign[f"{base}{rest}"] = None
                else:
                    is_certain = False
        if any(map(self.is_everywhere, foreign)):
            return Presence.THERE
        if not foreign or not is_certain:
            return Presence.UNKNOWN
        return tuple(each for each in foreign if set(self.having(each)) != {Presence.MISSING}) or Presence.MISSING

    def is_everywhere(self, path: str) -> bool:
        return all(self.having(path)[place] is Presence.THERE for place in self.readable(package_of(path)))

    def is_known(self, path: str) -> bool:
        """Tell if a release has a name, also through a base in another package."""
        return any(
            each is Presence.THERE or (isinstance(each, tuple) and any(self.is_known(base) for base in each))
            for each in dict.fromkeys(self.having(path))
        )

    def is_accepted_elsewhere(self, package: str, method: str, parameter: str) -> bool:
        """Tell if a class of another package replaces a method and accepts a parameter: then callers pass it."""
        key = package, method
        if key not in self.replacing:
            others = [tables.name_table for name, tables in self.api.tables.items() if name in FOLLOWERS - {package}]
            rows = [row for table in others for row in table.matching("name", rf"^\w+\.{method}$")]
            self.replacing[key] = {line.partition("=")[0] for row in rows for line in row[3].split("\n")}
        return parameter in self.replacing[key]

    def rename(self, path: str) -> str:
        """Return the new name of a parameter or field as the stack states it; empty if it states none."""
        owner, parenthesis, name = path.partition("(")
        if not parenthesis:
            owner, _, name = path.rpartition(".")
        is_member = owner.rpartition(".")[2][:1].isupper()
        return self.api.rename(owner, name.removesuffix(")")) if parenthesis or is_member else ""


def presence_of(path: str, view: View) -> Presence:
    """Tell if a name is there: a missing class has no parameters, and what is made at run time is unknown."""
    presence = view.presence(path)
    owner, parenthesis, _ = path.partition("(")
    if parenthesis and view.presence(owner) is Presence.MISSING:
        presence = Presence.MISSING
    made = presence is Presence.MISSING and may_be_made(path, view)
    return Presence.UNKNOWN if made else presence


def is_attribute(path: str, view: View) -> bool:
    """Tell if a name is an attribute that methods assign, or that a class other than a dataclass only annotates."""
    found = None if "(" in path else view.find(path)[0]
    if found is None or found.kind not in {ATTRIBUTE, FIELD}:
        return False
    owner, _ = view.find(found.path.rpartition(".")[0])
    return found.kind == ATTRIBUTE or owner is None or "@dataclass" not in owner.detail.split()


def takes_anything(view: View, name: str) -> bool:
    """Tell if a function or constructor of this package takes any keyword argument."""
    parameters: Sequence[str] = [each.name for each in view.parameters(name) or ()]
    return any(each.startswith("**") and each != UNKNOWN_BASE for each in parameters)


def package_of(path: str) -> str:
    return path.partition(".")[0].partition("(")[0]
