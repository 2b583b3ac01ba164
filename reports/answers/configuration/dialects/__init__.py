"""Defines the rules that map option values to the keys of each tool's configuration file.

The same rules read a file and write an edit. Keys without a rule either do not matter to the option space (a learning
rate) or are listed as ``not_judged``, because no case measures them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping

    from cases.space.options import Value

TRUE: Final = ("true", "yes", "on")
FALSE: Final = ("false", "no", "off")
NULL: Final = ("", "null", "none", "~")
HARMLESS: Final = (None, False, 0, 1, "", "auto", "sft", "pt", "bnb", "bitsandbytes")

# The assumed version of a package that is not installed.
NEWEST: Final = {"accelerate": Version("1.15"), "transformers": Version("5.23"), "trl": Version("1.16")}

# The roles of files, in increasing precedence: an adapter's file takes precedence over a trainer's, a trainer's over
# those of an engine and a launcher.
LAUNCHER, ENGINE, TRAINER, ADAPTER = "launcher", "engine", "trainer", "adapter"
ROLES: Final = (LAUNCHER, ENGINE, TRAINER, ADAPTER)


class UnwritableError(LookupError):
    """A file cannot express a value."""


@dataclass(frozen=True)
class Containing:
    """Matches every value that contains a word, as ``full_shard auto_wrap`` contains ``full_shard``. Read-only."""

    word: str

    def admits(self, value: Any) -> bool:
        parts = value if isinstance(value, list) else [value]
        return any(self.word in str(part).lower() for part in parts)


@dataclass(frozen=True)
class ModelName:
    """Matches names of models that contain a word, but not those in which ``other`` matches. Read-only."""

    word: str
    other: re.Pattern[str] | None = None

    def admits(self, value: Any) -> bool:
        name = str(value).lower()
        return self.word in name and (self.other is None or self.other.search(name) is None)


@dataclass(frozen=True)
class AtLeast:
    """Matches every number from ``least`` on. An edit writes ``least``."""

    least: int

    def admits(self, value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and value >= self.least


@dataclass(frozen=True)
class MoreThan:
    """Matches every number greater than that of another key, or than 1 without it. Read-only."""

    key: str

    def admits(self, value: Any, other: Any = None) -> bool:
        return AtLeast((other if AtLeast(1).admits(other) else 1) + 1).admits(value)


@dataclass(frozen=True)
class AnyValue:
    """Matches every value but an empty one. Read-only."""

    def admits(self, value: Any) -> bool:
        return value is not None and value not in ([], {})


@dataclass(frozen=True)
class Rule:
    """A value of an option, and the keys by which a file expresses it. All keys must have one of their values.

    A key is a dotted path, or several alternatives separated by ``|``; the first one in the file counts. The value
    ``None`` matches a missing key. An edit writes the first of several values. ``amp`` is not an option of the option
    space: automatic mixed precision means autocast and, under FSDP, also FSDP's own policy.
    """

    option: str
    value: Value
    keys: Mapping[str, Any]
    since: Mapping[str, str] = field(default_factory=dict)  # by package: the first version for which the rule holds
    until: Mapping[str, str] = field(default_factory=dict)  # by package: the first version for which it no longer holds


@dataclass(frozen=True)
class Excluding:
    """Matches every value that enables something, except some. Read-only."""

    values: tuple[Any, ...]

    def admits(self, value: Any) -> bool:
        return is_enabled(value) and normalise(value) not in self.values


ENABLED: Final = Excluding(())


@dataclass(frozen=True)
class UnmeasuredSetting:
    """A key that enables a feature which no cell measures, if its value is one of ``when``.

    ``forces`` is True if results without the feature say nothing about a job that has it. The name of the feature may
    contain ``{value}``.
    """

    key: str
    feature: str
    when: Any = ENABLED
    forces: bool = True


def nothing(_values: Mapping[str, Any], _options: Mapping[str, Value]) -> tuple[str, ...]:
    return ()


def no_arguments(_values: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def sft(_values: Mapping[str, Any], _words: str) -> str:
    return "sft"


def training(_values: Mapping[str, Any], _words: str) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The configuration format of one tool.

    ``marks`` are keys that only this dialect has. ``defaults`` returns the option values that the tool uses if the file
    does not set them, for the values that are set and the installed versions. ``patches`` returns the parts of the
    measured libraries that the tool replaces, for the values of a file and of the options, and ``corrects`` the ids of
    the findings that the tool corrects itself in some of its releases. ``arguments`` returns the trainer's arguments
    under the names of transformers and TRL. ``trainer`` and ``purpose`` return what the file trains with, and what it
    is for if not for training, from its values and the words of its command.
    """

    name: str
    role: str
    marks: frozenset[str]
    rules: tuple[Rule, ...]
    defaults: Callable[[Mapping[str, Value], Mapping[str, Version]], dict[str, Value]]
    not_judged: tuple[UnmeasuredSetting, ...] = ()
    patches: Callable[[Mapping[str, Any], Mapping[str, Value]], tuple[str, ...]] = nothing
    corrects: Callable[[Mapping[str, Any], Mapping[str, Value]], tuple[str, ...]] = nothing
    arguments: Callable[[Mapping[str, Any]], dict[str, Any]] = no_arguments
    trainer: Callable[[Mapping[str, Any], str], str] = sft
    purpose: Callable[[Mapping[str, Any], str], str] = training
    own_trainer: bool = False  # it trains by a subclass of the Trainer, which may replace what an error lies in
    references: tuple[str, ...] = ()  # keys whose value can be the path of another file of the job
    generic: frozenset[str] = frozenset()  # keys that other dialects share; they decide if a file has no marks

    def rules_for(self, option: str) -> Iterable[Rule]:
        return (rule for rule in self.rules if rule.option == option)


def normalise(value: Any) -> Any:
    """Return a value as YAML readers interpret it: ``'no'``, ``No`` and ``false`` become False."""
    if isinstance(value, list):
        return [normalise(each) for each in value]
    if not isinstance(value, str):
        return value
    text = value.strip().lower().removeprefix("torch.")
    if text in TRUE or text in FALSE:
        return text in TRUE
    if text in NULL:
        return None
    return int(text) if text.lstrip("-").isdigit() else text


def is_enabled(value: Any) -> bool:
    """Tell if a value enables something, and is not only a disabled flag or a default."""
    return normalise(value) is True or (normalise(value) not in HARMLESS and value not in ([], {}))


def admits(expected: Any, value: Any) -> bool:
    """Tell if a value is one of the expected values."""
    several = expected if isinstance(expected, tuple) else (expected,)
    return any(
        each.admits(value)
        if isinstance(each, Containing | ModelName | AtLeast | MoreThan | AnyValue | Excluding)
        else are_equal(normalise(each), normalise(value))
        for each in several
    )


def are_equal(one: Any, other: Any) -> bool:
    """Tell if two values are equal and both or neither are flags: the number 1 is not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def first_key_in(path: str, values: Mapping[str, Any]) -> str | None:
    """Return the first of the paths separated by ``|`` that a file has; None if it has none."""
    return next((each for each in path.split("|") if values.get(each) is not None), None)


def matches(rule: Rule, values: Mapping[str, Any]) -> bool:
    """Tell if the values of a file, by dotted path, match all keys of a rule."""
    return all(
        expected.admits(values.get(path), values.get(expected.key))
        if isinstance(expected, MoreThan)
        else admits(expected, values.get(first_key_in(path, values) or path))
        for path, expected in rule.keys.items()
    )


def value_to_write(expected: Any) -> Any:
    """Return the value that an edit writes for the expected values.

    Raises:
        UnwritableError: the values are read-only.
    """
    first = expected[0] if isinstance(expected, tuple) else expected
    if isinstance(first, AtLeast):
        return first.least
    if isinstance(first, Containing | ModelName | MoreThan | AnyValue | Excluding):
        raise UnwritableError(first)
    return first
