"""Reads one release of a package into the rows of the map: its names, and its uses of other packages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from functools import cached_property
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement

from matrix.api_map.packages import MAPPED, PACKAGES, compiled_module, is_read, module_name
from matrix.api_map.reading.calls import FollowedCalls
from matrix.api_map.reading.conditions import FUNCTION, TRY, TYPING
from matrix.api_map.reading.keywords import ACCEPTED, ALIAS
from matrix.api_map.reading.lazy import LazyExports
from matrix.api_map.reading.module_facts import ModuleFacts
from matrix.api_map.reading.needs import needed_by_file, of_packages
from matrix.api_map.reading.unbound import UNBOUND
from matrix.api_map.reading.uses import (
    CALL,
    CHECK_MODULE,
    CHECKED,
    IMPORT,
    INHERITED,
    KEYWORD,
    LISTED,
    MODULE,
    NOT_CHECKED,
    STAR,
    distribution,
)
from matrix.api_map.rows import NEEDS, NO_DEFINITIONS, Name, UsedName

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterator, Mapping

    from matrix.api_map.reading.facts_cache import FactsCache
    from matrix.api_map.reading.needs import FileRule

EXPORT: Final = "export"
BOUND: Final = "import"
DYNAMIC: Final = "dynamic"
CALLED: Final = frozenset({"function", "method"})
OWN_ROOTS: Final = frozenset({"object", "ABC", "abc.ABC", "Protocol", "@dataclass", "str", "Enum", "enum.Enum"})


@dataclass(kw_only=True)
class ReleaseFacts:
    """What was read of one release. ``requires`` are its requirements on packages and libraries of the map."""

    package: str
    modules: dict[str, ModuleFacts]
    requires: tuple[str, ...] = ()
    starred: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def unreadable(self) -> tuple[str, ...]:
        return tuple(name for name, facts in self.modules.items() if facts.unreadable)

    def names(self) -> Iterator[Name]:
        for module, facts in self.modules.items():
            yield Name(module, "", "module", "")
            yield from (Name(module, *each) for each in facts.definitions)
            yield from (Name(module, *each) for each in self.translated(facts))
            bound = {**self.star_names(module), **facts.imports, **self.exports(module)}
            for name, target in bound.items():
                yield Name(module, name, EXPORT if name not in facts.imports else BOUND, target)
            known = bound.keys() | {each[0] for each in facts.definitions}
            for name in dict.fromkeys([*(facts.lazy.listed or ()), *facts.lazy.answered]):
                if name.isidentifier() and name not in known:
                    yield Name(module, name, EXPORT, "")
            for name, conditions in self.needs(module):
                yield Name(module, name, NEEDS, conditions)
            for name in facts.lazy.submodules:
                if f"{module}.{name}" not in self.modules and name not in known and name:
                    yield Name(f"{module}.{name}", "", "module", "alias")
            if facts.lazy.dynamic:
                yield Name(module, "*", DYNAMIC, "")

    def translated(self, facts: ModuleFacts) -> Iterator[tuple[str, str, str]]:
        """Yield the keywords that decorators take before they call a function, if it states the one they pass on."""
        for scope, paths in facts.decorators.items():
            called = {scope, f"{scope}.__init__"}
            details = (detail for name, kind, detail in facts.definitions if name in called and kind in CALLED)
            stated = {line.partition("=")[0] for line in next(details, "").split("\n")}
            for path in paths:
                module, name = self.located(path)
                for old, new in self.modules.get(module, ModuleFacts()).translated.get(name, {}).items():
                    if old not in stated and (not new or new in stated):
                        yield f"{scope}.{old}", ALIAS if new else ACCEPTED, new

    def exports(self, module: str) -> dict[str, str]:
        """Return the names that a lazy module exports, with where each is defined."""
        lazy = self.modules[module].lazy
        found: dict[str, str] = {}
        for folder in lazy.scanned:
            found.update(self.scanned(f"{module}.{folder}" if folder else module))
        return found | {name: f"{module}.{sub}.{name}" if sub else name for name, sub in lazy.names.items()}

    def scanned(self, parent: str) -> Iterator[tuple[str, str]]:
        for module, facts in self.modules.items():
            if module.startswith(f"{parent}.") and (facts.lazy.listed or facts.lazy.required):
                if facts.lazy.scanned or any(each.startswith(f"{module}.") for each in self.children(module)):
                    continue  # only files, not packages
                for name in (*(facts.lazy.listed or ()), *facts.lazy.required):
                    yield name, f"{module}.{name}"

    def needs(self, module: str) -> Iterator[tuple[str, str]]:
        """Yield the exports of a lazy module that are placeholders unless conditions hold."""
        lazy = self.modules[module].lazy
        yield from ((name, conditions) for name, conditions in lazy.needed.items() if conditions)
        for folder in lazy.scanned:
            for name, path in dict(self.scanned(f"{module}.{folder}" if folder else module)).items():
                source = path.rpartition(".")[0]
                packages = [
                    *needed_by_file(source.rpartition(".")[2], self.file_rules),
                    *self.modules[source].lazy.required.get(name, ()),
                ]
                if packages:
                    yield name, of_packages(packages)

    @cached_property
    def file_rules(self) -> list[FileRule]:
        return next((facts.lazy.rules for facts in self.modules.values() if facts.lazy.rules), [])

    def children(self, module: str) -> tuple[str, ...]:
        return self.by_parent.get(module, ())

    @property
    def by_parent(self) -> Mapping[str, tuple[str, ...]]:
        if "" not in self._parents:
            found: dict[str, list[str]] = {"": []}
            for each in self.modules:
                found.setdefault(each.rpartition(".")[0], []).append(each)
            self._parents.update({name: tuple(each) for name, each in found.items()})
        return self._parents

    _parents: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def star_names(self, module: str) -> dict[str, str]:
        """Return what the star imports of a module bind."""
        if module in self.starred:
            return self.starred[module]
        self.starred[module] = {}  # ends cycles
        found: dict[str, str] = {}
        for source in self.modules[module].stars:
            facts = self.modules.get(source)
            if facts is None:
                continue
            inner = {**self.star_names(source), **facts.imports, **self.exports(source)}
            inner |= {name: f"{source}.{name}" for name, _, _ in facts.definitions if "." not in name}
            public = facts.lazy.listed or [name for name in inner if not name.startswith("_")]
            found |= {name: inner.get(name, f"{source}.{name}") for name in public}
        self.starred[module] = found
        return found

    def uses(self) -> Iterator[UsedName]:
        """Yield the uses of other packages, and the package's own imports, without those for type checkers."""
        for module, facts in self.modules.items():
            for target, kind, conditions in facts.uses:
                held = self.with_constants(conditions.split(";") if conditions else [])
                if TYPING not in held and kind != CALL:
                    for found, found_kind in self.resolved(module, target, kind, held):
                        yield UsedName(module, found, found_kind, ";".join(sorted(set(held))))
        yield from FollowedCalls(self).rows()

    def resolved(self, module: str, target: str, kind: str, held: list[str]) -> Iterator[tuple[str, str]]:
        if kind in {LISTED, CHECKED}:
            if kind == CHECKED and distribution(target) in self.checked:
                yield target, kind
        elif kind == UNBOUND:
            yield target, kind
        elif target.partition(".")[0] != self.package:
            if kind != MODULE or not target.startswith("torch"):
                yield target, kind
        elif kind == INHERITED or (kind == KEYWORD and ".super." in target):
            yield from self.inherited(target, kind)
        elif kind in {IMPORT, MODULE, STAR} and not {FUNCTION, TRY} & set(held) and target != module:
            yield target, kind

    @property
    def checked(self) -> frozenset[str]:
        """The packages of which a release checks the version when it is imported."""
        facts = self.modules.get(CHECK_MODULE, ModuleFacts())
        return frozenset(target for target, kind, _ in facts.uses if kind == LISTED) - NOT_CHECKED

    def inherited(self, target: str, kind: str) -> Iterator[tuple[str, str]]:
        """Yield what a class takes from a base in another package, if only one of its bases is there."""
        call, _, keyword = target.partition("(")
        owner, _, member = call.rpartition(".super.") if kind == KEYWORD else call.rpartition(".")
        foreign, is_own = self.base_with(owner, member, skip_first=kind == KEYWORD)
        if not is_own and len(foreign) == 1:
            found = f"{foreign[0]}.{member}"
            yield (f"{found}({keyword}", KEYWORD) if kind == KEYWORD else (found, INHERITED)

    def base_with(self, owner: str, member: str, *, skip_first: bool) -> tuple[list[str], bool]:
        """Return the bases of a class in other packages, and if the class or a base in its package has a member."""
        foreign: dict[str, None] = {}
        waiting, seen = [owner], {owner}
        while waiting:
            current = waiting.pop(0)
            module, name = self.located(current)
            members = self.classes.get((module, name))
            if members is None:
                if current not in OWN_ROOTS:
                    foreign[current] = None
                continue
            if member in members and not (skip_first and current == owner):
                return [], True
            for base in self.bases.get((module, name), ()):
                if base not in seen and base not in OWN_ROOTS:
                    seen.add(base)
                    waiting.append(base)
        outside = [each for each in foreign if each.partition(".")[0] != self.package]
        return (outside if all(each.partition(".")[0] in PACKAGES for each in outside) else []), False

    def located(self, path: str) -> tuple[str, str]:
        """Return the module and the name of an own class or function, through imports."""
        for _ in range(8):
            module, _, name = path.rpartition(".")
            facts = self.modules.get(module)
            if facts is None or (module, name) in self.classes:
                return module, name
            target = facts.imports.get(name) or self.exports_of(module).get(name)
            if target is None:
                return module, name
            path = target
        return module, name

    def exports_of(self, module: str) -> dict[str, str]:
        if module not in self._exports:
            self._exports[module] = self.exports(module)
        return self._exports[module]

    _exports: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def classes(self) -> Mapping[tuple[str, str], set[str]]:
        if not self._classes:
            for module, facts in self.modules.items():
                for name, kind, detail in facts.definitions:
                    if kind == "class":
                        self._classes[module, name] = set()
                        self._bases[module, name] = tuple(detail.split())
                    elif "." in name and kind not in NO_DEFINITIONS:
                        owner, _, member = name.partition(".")
                        self._classes.setdefault((module, owner), set()).add(member)
        return self._classes

    @property
    def bases(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        return self._bases if self.classes else {}

    _classes: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _bases: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def with_constants(self, conditions: list[str]) -> list[str]:
        """Replace variables by the conditions that they hold; an unknown variable is any test."""
        found = []
        for each in conditions:
            negative, text = each.startswith("!"), each.removeprefix("!")
            if text.startswith("ref:"):
                text = self.constant(text.removeprefix("ref:"))
            if negative and text != "if":
                text = text.removeprefix("!") if text.startswith("!") else f"!{text}"
            found.append(text)
        return found

    def constant(self, path: str) -> str:
        for _ in range(4):
            module, _, name = path.rpartition(".")
            facts = self.modules.get(module)
            if facts is None:
                return "if"
            if name in facts.constants:
                return facts.constants[name]
            if name not in facts.imports:
                return "if"
            path = facts.imports[name]
        return "if"


def read_release(package: str, wheel: zipfile.ZipFile, cache: FactsCache) -> ReleaseFacts:
    """Read a release from its wheel. A stub file adds to the module of its name."""
    modules: dict[str, ModuleFacts] = {}
    for file in sorted(wheel.infolist(), key=lambda each: each.header_offset):
        if is_read(package, file.filename):
            facts = cache.facts(wheel, file)
            name, _ = module_name(file.filename)
            modules[name] = merged(modules[name], facts) if name in modules else facts
        compiled = compiled_module(package, file.filename)
        if compiled:  # whose names are not known, unless a stub states them
            modules[compiled] = merged(
                modules.get(compiled, ModuleFacts()), ModuleFacts(lazy=LazyExports(dynamic=True))
            )
    cache.commit()
    return ReleaseFacts(
        package=package,
        modules=modules,
        requires=tuple(f"{plain(each)}{each.specifier}" for each in requirements(wheel) if plain(each) in MAPPED),
    )


def merged(one: ModuleFacts, other: ModuleFacts) -> ModuleFacts:
    """Return the facts of a module and its stub; uses are those of the module, which has some."""
    return ModuleFacts(
        definitions=list(dict.fromkeys([*one.definitions, *other.definitions])),
        imports=one.imports | other.imports,
        stars=list(dict.fromkeys([*one.stars, *other.stars])),
        lazy=replace(
            one.lazy if one.lazy.listed or one.lazy.names else other.lazy,
            dynamic=one.lazy.dynamic or other.lazy.dynamic,
        ),
        uses=one.uses or other.uses,
        constants=one.constants | other.constants,
        decorators=one.decorators | other.decorators,
        translated=one.translated | other.translated,
        functions=one.functions | other.functions,
    )


def requirements(wheel: zipfile.ZipFile) -> tuple[Requirement, ...]:
    """Return the requirements in the metadata of a wheel, without those of extras."""
    names = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
    if not names:
        return ()
    headers = HeaderParser().parsestr(wheel.read(names[0]).decode(errors="replace"))
    return tuple(Requirement(each) for each in headers.get_all("Requires-Dist", []) if "extra ==" not in each)


def plain(requirement: Requirement) -> str:
    return requirement.name.replace("-", "_").lower()
