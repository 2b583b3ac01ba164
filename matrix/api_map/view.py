"""Answers about names in one release of each package, as if these releases were installed together."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

from matrix.api_map.packages import SKIPPED_FOLDERS
from matrix.api_map.rows import NO_DEFINITIONS, RENAMES, STILL_ACCEPTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.api_map.tables import NameRow, PackageTables

DEEPEST: Final = 12  # imports that lead to a definition, or bases of a class
UNKNOWN_BASE: Final = "**?"  # stands for the parameters of a base that the map does not have
CONSTRUCTORS: Final = frozenset({"__init__", "__new__"})
REDIRECTIONS: Final = frozenset({"import", "export"})
BUILT_IN_BASES: Final = frozenset(
    {"object", "ABC", "abc.ABC", "Protocol", "typing.Protocol", "Generic", "typing.Generic"}
)


class Presence(Enum):
    """If a name is there. ``UNKNOWN``: it is made at run time, or in a part that the map does not read."""

    THERE = "there"
    MISSING = "missing"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        raise TypeError("compare a Presence by name")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function, or a field of a dataclass. ``default`` is source text; None if there is none."""

    name: str
    default: str | None = None
    positional: bool = True


@dataclass(frozen=True, slots=True)
class FoundName:
    """Where a path leads: ``kind`` is module, class, function, method, variable, field, attribute or property."""

    module: str
    name: str
    kind: str
    detail: str = ""

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


@dataclass(frozen=True, kw_only=True)
class View:
    """One release of each package, by its place.

    ``libraries`` are the versions of other modules that are installed; None if that is not known.
    """

    tables: Mapping[str, PackageTables]
    places: Mapping[str, int]
    libraries: Mapping[str, str] | None = None
    _modules: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)
    _parameters: dict[str, list[Parameter] | None] = field(default_factory=dict, repr=False, compare=False)

    def rows(self, module: str, name: str) -> Iterator[NameRow]:
        package = module.partition(".")[0]
        place = self.places.get(package)
        if place is None or package not in self.tables:
            return
        for row in self.tables[package].names(module).get(name, ()):
            if row.first <= place <= row.last:
                yield row

    def has_module(self, module: str) -> bool:
        if module not in self._modules:
            self._modules[module] = any(True for _ in self.rows(module, ""))
        return self._modules[module]

    def presence(self, path: str) -> Presence:
        """Tell if a name is there: ``transformers.Trainer``, ``transformers.Trainer.train``, or ``...train(trial)``."""
        owner, _, parameter = path.partition("(")
        if owner.partition(".")[0] not in self.places:
            return Presence.UNKNOWN
        if parameter:
            return self.presence_of_parameter(owner, parameter.rstrip(")"))
        return self.find(owner)[1]

    def find(self, path: str, depth: int = 0) -> tuple[FoundName | None, Presence]:
        """Return the definition that a dotted path leads to, through imports and bases."""
        parts = path.split(".")
        if parts[0] not in self.places or depth > DEEPEST:
            return None, Presence.UNKNOWN
        if self.has_module(path):
            return FoundName(path, "", "module"), Presence.THERE
        for count in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:count])
            if self.has_module(module):
                return self.find_in(module, parts[count], parts[count + 1 :], depth)
        return None, Presence.UNKNOWN

    def find_in(self, module: str, name: str, rest: list[str], depth: int) -> tuple[FoundName | None, Presence]:
        redirected: str | None = None
        for row in self.rows(module, name):
            if row.kind in REDIRECTIONS:
                redirected = row.detail
            elif row.kind not in NO_DEFINITIONS:
                return self.part_of(FoundName(module, name, row.kind, row.detail), rest, depth)
        if redirected is None:
            return None, self.absence(module, name)
        if redirected:
            found, presence = self.find(".".join([redirected, *rest]), depth + 1)
            if rest or found is not None:
                return found, presence
        return None, Presence.UNKNOWN if rest else Presence.THERE

    def absence(self, module: str, name: str) -> Presence:
        """Tell if what a module does not define can be there all the same."""
        dynamic = any(True for _ in self.rows(module, "*"))
        parts = module.split(".")
        skipped = len(parts) == 1 and name in SKIPPED_FOLDERS.get(module, ())
        dunder = name.startswith("__") and name.endswith("__")
        return Presence.UNKNOWN if dynamic or skipped or dunder else Presence.MISSING

    def part_of(self, found: FoundName, rest: list[str], depth: int) -> tuple[FoundName | None, Presence]:
        if not rest:
            return found, Presence.THERE
        if found.kind == "class" and len(rest) == 1:
            return self.member(found, rest[0], depth)
        return None, Presence.UNKNOWN

    def member(self, owner: FoundName, name: str, depth: int = 0) -> tuple[FoundName | None, Presence]:
        """Return the definition of a class's member, of the class or of a base."""
        if name.startswith("__") and name.endswith("__") and name not in CONSTRUCTORS:
            return None, Presence.UNKNOWN
        unknown = False
        for each in self.lineage(owner, depth):
            if each is None:
                unknown = True
                continue
            for row in self.rows(each.module, f"{each.name}.{name}"):
                if row.kind not in NO_DEFINITIONS:
                    return FoundName(each.module, f"{each.name}.{name}", row.kind, row.detail), Presence.THERE
            unknown |= any(True for _ in self.rows(each.module, f"{each.name}.__getattr__"))
        return None, Presence.UNKNOWN if unknown else Presence.MISSING

    def lineage(self, owner: FoundName, depth: int = 0) -> Iterator[FoundName | None]:
        """Yield a class and its bases, nearest first; None for a base that the map does not have."""
        waiting: list[FoundName | None] = [owner]
        seen = {owner.path}
        while waiting:
            current = waiting.pop(0)
            yield current
            if current is None:
                continue
            for base in current.detail.split():
                if base.startswith("@") or base in BUILT_IN_BASES or base in seen:
                    continue
                seen.add(base)
                found, _ = self.find(base, depth + 1)
                waiting.append(found if found is not None and found.kind == "class" else None)

    def presence_of_parameter(self, owner: str, name: str) -> Presence:
        found = self.parameters(owner)
        if found is None:
            return Presence.UNKNOWN
        if any(each.name == name for each in found) or self.is_accepted(owner, name):
            return Presence.THERE
        return Presence.UNKNOWN if any(each.name.startswith("**") for each in found) else Presence.MISSING

    def is_accepted(self, owner: str, name: str) -> bool:
        """Tell if a function accepts a keyword that it does not state, such as the old name of a parameter."""
        found, _ = self.find(owner.removesuffix(".__init__"))
        return found is not None and any(
            row.kind in STILL_ACCEPTED for row in self.rows(found.module, f"{found.name}.{name}")
        )

    def parameters(self, path: str) -> list[Parameter] | None:
        """Return the parameters of a function, a method or a class's constructor, without ``self``.

        ``*args`` and ``**kwargs`` keep their stars. None if they are not known.
        """
        if path not in self._parameters:
            found, _ = self.find(path)
            self._parameters[path] = None if found is None else self.parameters_of(found)
        return self._parameters[path]

    def parameters_of(self, found: FoundName) -> list[Parameter] | None:
        if found.kind == "class":
            return self.constructor(found)
        if found.kind in {"function", "method"}:
            return parsed(found.detail, is_method=found.kind == "method")
        return None

    def constructor(self, owner: FoundName) -> list[Parameter] | None:
        fields: dict[str, Parameter] = {}
        is_dataclass = False
        for each in self.lineage(owner):
            if each is None:
                fields.setdefault(UNKNOWN_BASE, Parameter(UNKNOWN_BASE))
                continue
            rows = list(self.rows(each.module, f"{each.name}.__init__"))
            if rows and not is_dataclass:
                return parsed(rows[0].detail, is_method=True)
            is_dataclass |= "@dataclass" in each.detail.split()
            if "@dataclass" in each.detail.split():
                for parameter in self.fields(each):
                    fields.setdefault(parameter.name, parameter)
        return list(fields.values()) if is_dataclass else None

    def fields(self, owner: FoundName) -> Iterator[Parameter]:
        package = owner.module.partition(".")[0]
        place = self.places[package]
        prefix = f"{owner.name}."
        for name, rows in self.tables[package].names(owner.module).items():
            if name.startswith(prefix):
                for row in rows:
                    if row.kind == "field" and row.first <= place <= row.last:
                        yield Parameter(name.removeprefix(prefix), row.detail or None)

    def rename(self, path: str, old: str) -> str:
        """Return the new name of a parameter or field that a class or function states; empty if it states none."""
        found, _ = self.find(path)
        if found is None:
            return ""
        scopes = list(self.lineage(found)) if found.kind == "class" else [found]
        for each in scopes:
            for row in self.rows(each.module, f"{each.name}.{old}") if each is not None else ():
                if row.kind in RENAMES:
                    return row.detail
        return ""


def parsed(detail: str, *, is_method: bool) -> list[Parameter]:
    """Return the parameters that a stored signature lists."""
    found: list[Parameter] = []
    positional = True
    for line in detail.split("\n"):
        if line in {"*", "/", ""}:
            positional = positional and line != "*"
            continue
        name, separator, default = line.partition("=")
        found.append(Parameter(name, default if separator else None, positional))
        positional = positional and not name.startswith("*")
    return found[1:] if is_method and found and found[0].name in {"self", "cls"} else found
