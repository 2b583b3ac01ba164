"""Follows the functions that modules of a release call while they are imported.

A called function is stored like a module: its uses are those of ``MODULE:FUNCTION``. The values of arguments that
decide which part of it runs follow in parentheses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from matrix.api_map.reading.arguments import UNKNOWN, bound_values, defaults_of
from matrix.api_map.reading.conditions import ARGUMENT, AVAILABLE, FUNCTION, OTHER, TRY, TYPING
from matrix.api_map.reading.uses import CALL
from matrix.api_map.rows import UsedName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.api_map.reading.functions import FunctionFacts
    from matrix.api_map.reading.module_facts import ModuleFacts

    class ReadRelease(Protocol):
        """The facts of a release, as ``ReleaseFacts`` has them."""

        package: str
        modules: dict[str, ModuleFacts]

        def located(self, path: str) -> tuple[str, str]: ...
        def with_constants(self, conditions: list[str]) -> list[str]: ...
        def resolved(self, module: str, target: str, kind: str, held: list[str]) -> Iterator[tuple[str, str]]: ...


FALSE: Final = frozenset({"None", "False", "0", "''"})
NEVER: Final = frozenset({FUNCTION, TRY, TYPING, OTHER})


class CalledFunction(NamedTuple):
    """A function with the values of the parameters that decide what it does; ``?`` is unknown."""

    module: str
    name: str
    values: tuple[tuple[str, str], ...]


class FollowedCalls:
    """The calls of a release. A function without uses that may fail, also in what it calls, has no rows."""

    def __init__(self, release: ReadRelease) -> None:
        self.release = release
        self.own: dict[CalledFunction, list[UsedName]] = {}  # rows of a function, without its calls
        self.calls: dict[CalledFunction, list[tuple[CalledFunction, str]]] = {}

    def rows(self) -> Iterator[UsedName]:
        """Yield the calls of modules, and the uses of the functions that they call, also through other functions."""
        roots = [*self.of_modules(), *(("", each, "") for each in self.availability_checks())]
        for _, function, _ in roots:
            self.follow(function)
        failing = self.failing()
        for module, function, held in roots:
            if module and function in failing:
                yield UsedName(module, self.path(function), CALL, held)
        for function in sorted(failing):
            yield from self.own[function]
            for called, held in self.calls[function]:
                if called in failing:
                    yield UsedName(self.path(function), self.path(called), CALL, held)
        yield from self.asked_elsewhere()

    def of_modules(self) -> Iterator[tuple[str, CalledFunction, str]]:
        """Yield the calls of own functions that modules make when they run, with their conditions."""
        for module, facts in self.release.modules.items():
            for target, kind, conditions in facts.uses:
                if kind == CALL and target.startswith(f"{self.release.package}."):
                    held = self.release.with_constants(conditions.split(";") if conditions else [])
                    called = self.called(target)
                    if called is not None and NEVER.isdisjoint(held):
                        yield module, called, joined(held)

    def asked_elsewhere(self) -> Iterator[UsedName]:
        """Yield the calls of other packages' functions that tell what is available."""
        for module, facts in self.release.modules.items():
            for target, kind, conditions in facts.uses:
                if kind == CALL and not target.startswith(f"{self.release.package}."):
                    held = self.release.with_constants(conditions.split(";") if conditions else [])
                    if NEVER.isdisjoint(held):
                        yield UsedName(module, target.partition("[")[0], CALL, joined(held))

    def availability_checks(self) -> Iterator[CalledFunction]:
        """Yield the functions that tell what is available, which other packages call as well."""
        for module, facts in self.release.modules.items():
            for name, function in facts.functions.items():
                if AVAILABLE.fullmatch(name):
                    yield deciding(module, name, function, defaults_of(function["parameters"]))

    def called(self, target: str) -> CalledFunction | None:
        """Return the function that a call means, if it uses anything."""
        path, _, arguments = target.partition("[")
        module, name = self.release.located(path)
        facts = self.release.modules.get(module)
        function = facts.functions.get(name) if facts is not None else None
        if function is None:
            return None
        values = bound_values(function["parameters"], f"[{arguments}")
        return deciding(module, name, function, values)

    def facts(self, function: CalledFunction) -> FunctionFacts:
        return self.release.modules[function.module].functions[function.name]

    def follow(self, start: CalledFunction) -> None:
        waiting = [start]
        while waiting:
            function = waiting.pop()
            if function in self.own:
                continue
            self.own[function], self.calls[function] = [], []
            for target, kind, conditions in self.facts(function)["uses"]:
                held = held_with(conditions, dict(function.values))
                held = None if held is None else self.release.with_constants(held)
                if held is None or not NEVER.isdisjoint(held):
                    continue
                if kind == CALL:
                    called = self.called(target) if target.startswith(f"{self.release.package}.") else None
                    if called is not None:
                        self.calls[function].append((called, joined(held)))
                        waiting.append(called)
                    continue
                for found, found_kind in self.release.resolved(function.module, target, kind, held):
                    self.own[function].append(UsedName(self.path(function), found, found_kind, joined(held)))

    def failing(self) -> set[CalledFunction]:
        """Return the functions that have rows, or call one that has."""
        found = {function for function, rows in self.own.items() if rows}
        while True:
            more = {
                function
                for function, calls in self.calls.items()
                if function not in found and any(called in found for called, _ in calls)
            }
            if not more:
                return found
            found |= more

    def path(self, function: CalledFunction) -> str:
        """Return the name under which the uses of a function are stored."""
        defaults = defaults_of(self.facts(function)["parameters"])
        stated = [f"{name}={value}" for name, value in function.values if value != defaults[name]]
        return f"{function.module}:{function.name}" + (f"({','.join(stated)})" if stated else "")


def deciding(module: str, name: str, facts: FunctionFacts, values: Mapping[str, str]) -> CalledFunction:
    """Return a function with the values of the parameters that its conditions test."""
    conditions = {each.removeprefix("!") for _, _, held in facts["uses"] for each in held.split(";")}
    tested = {each.removeprefix(ARGUMENT).partition("=")[0] for each in conditions if each.startswith(ARGUMENT)}
    kept = tuple((parameter, value) for parameter, value in values.items() if parameter in tested)
    return CalledFunction(module, name, kept)


def held_with(conditions: str, values: dict[str, str]) -> list[str] | None:
    """Return the conditions that remain if parameters have these values; None if they cannot all hold."""
    found = []
    for each in conditions.split(";") if conditions else ():
        text = each.removeprefix("!")
        if not text.startswith(ARGUMENT):
            found.append(each)
            continue
        name, separator, value = text.removeprefix(ARGUMENT).partition("=")
        actual = values.get(name, UNKNOWN)
        holds = actual == value if separator else actual not in FALSE
        if actual == UNKNOWN or holds is each.startswith("!"):
            return None
    return found


def joined(conditions: list[str]) -> str:
    return ";".join(sorted(set(conditions)))
