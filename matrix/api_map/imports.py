"""Predicts what an import does in given versions: which modules run, and which names they miss.

It follows the imports that modules execute, across packages and through lazy modules, as the interpreter would. It
skips statements under conditions that it cannot tell, and errors that the code handles.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from matrix.api_map.holding import CONDITION, holds, unmet
from matrix.api_map.reading.conditions import FUNCTION, TRY
from matrix.api_map.reading.unbound import UNBOUND
from matrix.api_map.reading.uses import ATTRIBUTE, CALL, CHECKED, IMPORT, INHERITED, KEYWORD, LIBRARY, MODULE, STAR
from matrix.api_map.rows import NEEDS
from matrix.api_map.view import DEEPEST, Presence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.query import ApiMap
    from matrix.api_map.tables import UseRow
    from matrix.api_map.view import View

EXPORT: Final = "export"
MOST_MODULES: Final = 3000
NAMED: Final = frozenset({IMPORT, ATTRIBUTE, KEYWORD, INHERITED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A name that a module uses and that is not there.

    Attributes:
        module: the module that uses it.
        target: the dotted name, with ``(PARAMETER)`` for a keyword argument, or an unmet requirement.
        kind: import, module, attribute, keyword, inherited, checked, library (which is not installed), or unbound (a
            name that its own module binds only under a check).
        conditions: under which the code runs.
    """

    module: str
    target: str
    kind: str
    conditions: str = ""


@dataclass(kw_only=True)
class ImportPrediction:
    """Follows imports in one view. ``misses`` are in the order of execution; the first one ends a real import.

    Predictions of one view share ``present``, ``effects`` and ``held`` (the conditions that hold for a package's code):
    what a module runs does not depend on who imports it.
    """

    api: ApiMap
    view: View
    executed: dict[str, None] = field(default_factory=dict)
    misses: list[Miss] = field(default_factory=list)
    present: dict[str, bool] = field(default_factory=dict)
    effects: dict[str, tuple[Miss | str, ...]] = field(default_factory=dict)
    held: dict[tuple[str, str], bool] = field(default_factory=dict)

    def import_name(self, path: str) -> list[Miss]:
        """Return what ``from MODULE import NAME`` misses, or ``import MODULE`` if the path is a module."""
        before = len(self.misses)
        if self.view.has_module(path):
            self.execute_with_parents(path)
        else:
            module, _, name = path.rpartition(".")
            self.execute_with_parents(module)
            if self.is_missing(path):
                self.misses.append(Miss(module="", target=path, kind=IMPORT))
            else:
                for each in self.loaded(module, name):
                    self.execute_with_parents(each)
        return self.misses[before:]

    def execute_with_parents(self, module: str) -> None:
        """Run the packages of a module, and then the module. ``MODULE:FUNCTION`` runs a function's body."""
        path, is_function, _ = module.partition(":")
        parts = path.split(".")
        for count in range(1, len(parts) + 1):
            self.execute(".".join(parts[:count]))
        if is_function:
            self.execute(module)

    def execute(self, module: str) -> None:
        """Run a module once: its uses outside functions, in their stored order."""
        known = self.view.has_module(module.partition(":")[0])
        if module in self.executed or len(self.executed) > MOST_MODULES or not known:
            return
        self.executed[module] = None
        if module not in self.effects:
            self.effects[module] = tuple(self.effects_of(module))
        for effect in self.effects[module]:
            if isinstance(effect, Miss):
                self.misses.append(effect)
            else:
                self.execute_with_parents(effect)

    def effects_of(self, module: str) -> Iterator[Miss | str]:
        """Yield what a module misses and which modules it runs, in their stored order."""
        for row in self.uses(module):
            if FUNCTION not in row.conditions and TRY not in row.conditions and self.is_run(module, row):
                yield from self.effects_of_use(module, row)

    def uses(self, module: str) -> Iterator[UseRow]:
        package = root_of(module)
        place = self.view.places.get(package)
        if place is not None and package != "torch":  # whose own imports do not depend on the others
            for row in self.view.tables[package].uses(module):
                if row.first <= place <= row.last:
                    yield row

    def is_run(self, module: str, row: UseRow) -> bool:
        user = root_of(module)
        texts = [each for each in row.conditions.split(";") if each]
        return all(each == FUNCTION or self.is_held(each, user) for each in texts)

    def is_held(self, condition: str, user: str) -> bool:
        key = condition, user
        if key not in self.held:
            self.held[key] = holds(condition, self.view, self.api, user) is True
        return self.held[key]

    def effects_of_use(self, module: str, row: UseRow) -> Iterator[Miss | str]:
        if row.kind == CHECKED:
            for requirement in unmet([row.target], self.view, self.api):
                yield Miss(module=module, target=requirement, kind=CHECKED)
        elif row.kind == STAR:
            yield row.target
        elif row.kind == CALL:
            yield self.function(row.target)
        elif self.is_lacking(module, row):
            yield Miss(module=module, target=row.target, kind=row.kind, conditions=row.conditions)
        elif row.kind == MODULE:
            yield row.target
        elif row.kind in {IMPORT, ATTRIBUTE}:
            owner, _, name = row.target.rpartition(".")
            yield from self.loaded(owner, name)

    def is_lacking(self, module: str, row: UseRow) -> bool:
        """Tell if what a module uses is not there, if its conditions hold."""
        if row.kind == UNBOUND:
            return self.is_decided(row.conditions.split(";"))
        if row.kind == LIBRARY:
            return self.view.libraries is not None and row.target not in self.view.libraries
        return is_foreign(module, row.target) and self.is_missing(row.target)

    def is_decided(self, conditions: list[str]) -> bool:
        """Tell if it is known of all packages of conditions if they are there."""
        return self.view.libraries is not None or all(is_stated(each, self.view) for each in conditions)

    def function(self, target: str) -> str:
        """Return the ``MODULE:FUNCTION`` that a call runs; of another package, the function that a name leads to."""
        if ":" in target:
            return target
        found, _ = self.view.find(target)
        return f"{found.module}:{found.name}" if found is not None else ""

    def loaded(self, module: str, name: str, depth: int = 0) -> Iterator[str]:
        """Yield the modules that define a name of another one: a lazy module runs them when the name is first used.

        It runs none if it gives a placeholder, because something is not installed or too old.
        """
        if self.is_placeholder(module, name):
            return
        if self.view.has_module(f"{module}.{name}"):
            yield f"{module}.{name}"
            return
        for row in self.view.rows(module, name):
            source, _, original = row.detail.rpartition(".")
            if row.kind == EXPORT and source and (source, original) != (module, name):
                yield source
                if depth < DEEPEST:
                    yield from self.loaded(source, original, depth + 1)

    def is_placeholder(self, module: str, name: str) -> bool:
        """Tell if an export needs what is not there. If no libraries are known, a package without a version may be."""
        user = module.partition(".")[0]
        needs = [
            each
            for row in self.view.rows(module, name)
            if row.kind == NEEDS
            for each in row.detail.split(";")
            if self.view.libraries is not None or is_stated(each, self.view)
        ]
        return any(holds(each, self.view, self.api, user) is False for each in needs)

    def is_missing(self, path: str) -> bool:
        """Tell if a name is not there although another release has it: a name that none has is made at run time."""
        if path not in self.present:
            gone = self.view.presence(path) is Presence.MISSING
            self.present[path] = not gone or not self.api.having(path).known
        return not self.present[path]

    def used_later(self, module: str) -> Iterator[Miss]:
        """Yield what functions of a module use and what is not there, as far as their conditions hold."""
        for row in self.uses(module):
            later = FUNCTION in row.conditions and TRY not in row.conditions and row.kind in NAMED
            if later and is_foreign(module, row.target) and self.is_run(module, row) and self.is_missing(row.target):
                yield Miss(module=module, target=row.target, kind=row.kind, conditions=row.conditions)


def is_foreign(module: str, target: str) -> bool:
    """Tell if a target is another package's. A release has what its own modules import from each other."""
    return root_of(module) != root_of(target)


def is_stated(condition: str, view: View) -> bool:
    """Tell if a view has the package of a condition."""
    found = CONDITION.fullmatch(condition.removeprefix("!"))
    return found is not None and found["name"] in view.places


@cache
def root_of(path: str) -> str:
    """Return the package of ``MODULE``, ``MODULE.NAME``, ``MODULE.NAME(PARAMETER)`` or ``MODULE:FUNCTION``."""
    return re.split(r"[.:(]", path, maxsplit=1)[0]
