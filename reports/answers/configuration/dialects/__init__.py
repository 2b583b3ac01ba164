"""Defines the rows that map option values to the keys of each tool's configuration file.

The same rows read a file and write an edit. Keys without a row either do not matter to the option space (a learning
rate) or are listed as ``not_judged``, because no case measures them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cases.space.options import Value

TRUE: Final = ("true", "yes", "on")
FALSE: Final = ("false", "no", "off")
NULL: Final = ("", "null", "none", "~")

# What is taken for the version of a package that is not there.
NEWEST: Final = {"accelerate": Version("1.15"), "transformers": Version("5.23"), "trl": Version("1.16")}

# Of a launcher's file, which a trainer's file goes before; and of what a trainer reads.
LAUNCHER, TRAINER = "launcher", "trainer"


class UnwritableError(LookupError):
    """A file has no way to say a value."""


@dataclass(frozen=True)
class Containing:
    """Stands for every value that holds a word: ``full_shard`` of ``full_shard auto_wrap``. It can be read only."""

    word: str

    def admits(self, value: Any) -> bool:
        parts = value if isinstance(value, list) else [value]
        return any(self.word in str(part).lower() for part in parts)


@dataclass(frozen=True)
class AtLeast:
    """Stands for every number from a first one, which is what an edit writes."""

    least: int

    def admits(self, value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and value >= self.least


@dataclass(frozen=True)
class AnyValue:
    """Stands for anything but nothing. It can be read only."""

    def admits(self, value: Any) -> bool:
        return value is not None and value not in ([], {})


@dataclass(frozen=True)
class Rule:
    """A value of an option, and what a file says for it: all of ``keys``, each one of some values.

    A key is a dotted path, or several with ``|`` between them of which the first that is there counts. ``None`` is a
    key that is not there. The first of the values is what an edit writes. ``amp`` is no option: automatic mixed
    precision is autocast, and under FSDP its own policy beside it.
    """

    option: str
    value: Value
    keys: Mapping[str, Any]
    since: Mapping[str, str] = field(default_factory=dict)  # of a package, the version from which the row holds
    until: Mapping[str, str] = field(default_factory=dict)  # and the one from which it no longer does


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """``marks`` are keys that only this dialect has; ``implied`` is what goes without saying, with some versions."""

    name: str
    role: str
    marks: frozenset[str]
    rules: tuple[Rule, ...]
    implied: Callable[[Mapping[str, Value], Mapping[str, Version]], dict[str, Value]]
    not_judged: tuple[tuple[str, str], ...] = ()  # a key, and what it asks for
    generic: frozenset[str] = frozenset()  # keys that others have as well: they decide only where no mark does

    def of(self, option: str) -> Iterable[Rule]:
        return (rule for rule in self.rules if rule.option == option)


def plain(value: Any) -> Any:
    """A value as every reader of YAML means it: ``'no'``, ``No`` and ``false`` are one."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, str):
        return value
    text = value.strip().lower().removeprefix("torch.")
    if text in TRUE or text in FALSE:
        return text in TRUE
    if text in NULL:
        return None
    return int(text) if text.lstrip("-").isdigit() else text


def admits(expected: Any, value: Any) -> bool:
    """Whether a value is one of those expected."""
    several = expected if isinstance(expected, tuple) else (expected,)
    return any(
        each.admits(value) if isinstance(each, Containing | AtLeast | AnyValue) else same(plain(each), plain(value))
        for each in several
    )


def same(one: Any, other: Any) -> bool:
    """Equal, and both or neither a flag: 1 is a strategy's number, and not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def present(path: str, values: Mapping[str, Any]) -> str | None:
    """Of the paths between ``|``, the first that a file has."""
    return next((each for each in path.split("|") if values.get(each) is not None), None)


def matches(rule: Rule, values: Mapping[str, Any]) -> bool:
    """Whether a file, as values by dotted path, says what a row says."""
    return all(admits(expected, values.get(present(path, values) or path)) for path, expected in rule.keys.items())


def written(expected: Any) -> Any:
    """What an edit writes for one of some values.

    Raises:
        UnwritableError: they can be read only.
    """
    first = expected[0] if isinstance(expected, tuple) else expected
    if isinstance(first, AtLeast):
        return first.least
    if isinstance(first, Containing | AnyValue):
        raise UnwritableError(first)
    return first
