"""What a script or a configuration takes from the stack, and what of it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

UNCONDITIONAL: Final = ""


@dataclass(frozen=True, kw_only=True)
class Use:
    """A name, parameter or field that code takes from the stack.

    Attributes:
        paths: its dotted paths, of which one suffices, such as ``transformers.TrainingArguments(eval_strategy)``.
        place: where it stands, such as ``train.py:12``.
        guard: why it narrows nothing, such as ``a test of versions``; empty if it does.
        branch: it runs only under a condition of the script's own.
    """

    paths: tuple[str, ...]
    place: str
    guard: str = UNCONDITIONAL
    branch: bool = False

    @property
    def words(self) -> str:
        """The name as people write it: ``TrainingArguments(eval_strategy=)``."""
        owner, parenthesis, parameter = self.paths[0].partition("(")
        short = owner.partition(".")[2] or owner
        if parenthesis or short[:1].isupper():
            parts = short.split(".")
            first = next((number for number, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
            short = ".".join(parts[first:])
        return f"{short}({parameter.removesuffix(')')}=)" if parenthesis else short

    @property
    def package(self) -> str:
        return self.paths[0].partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Override:
    """A method of the script that replaces one of the stack.

    ``parameters`` are those that it accepts by name, without ``self``. ``is_called``: the script calls it itself.
    """

    path: str
    own_name: str
    parameters: tuple[str, ...]
    place: str
    is_called: bool = False


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """Something that is only known when the code runs."""

    place: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class OptionOwner:
    """Dataclasses whose fields are the options of a script: those of the stack, and fields of the script's own."""

    paths: tuple[str, ...]
    own_fields: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class StatedMinimum:
    """A release that the script itself demands, such as by ``check_min_version``."""

    package: str
    specifier: str
    place: str


@dataclass(kw_only=True)
class Found:
    """Everything that was read."""

    uses: list[Use] = field(default_factory=list)
    overrides: list[Override] = field(default_factory=list)
    dynamic: list[Dynamic] = field(default_factory=list)
    stated: list[StatedMinimum] = field(default_factory=list)
    outside: list[Dynamic] = field(default_factory=list)  # settings that are not passed straight to the stack
    options: list[OptionOwner] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.uses += other.uses
        self.overrides += other.overrides
        self.dynamic += other.dynamic
        self.stated += other.stated
        self.outside += other.outside
        self.options += other.options
