"""Parses and formats the names of version sets, cells and environments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

SEPARATOR: Final = "__"
PLUS: Final = "+"
PYTHON: Final = "py"
HOST: Final = "host"
BUILD: Final = re.compile(r"cu\d+|cpu|rocm[\d.]*|xpu")  # a local version, as in torch 2.11.0+cu130
EXTRA: Final = re.compile(r"([A-Za-z_-]*[A-Za-z_])(.*)")


class Extra(NamedTuple):
    """A package whose version differs from the slice's, e.g. ``peft`` and ``0.13.0``; the version may be empty.

    A version that begins with an at sign is a package that ``--with`` laid over the set: a commit, digest or release.
    """

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}{self.version}"


class SetKey(NamedTuple):
    """The name of a version set: a dated slice and its changes, e.g. ``2025-09+peft0.13.2+py3.12``."""

    slice: str
    extras: tuple[Extra, ...] = ()

    @classmethod
    def parse(cls, text: str) -> SetKey:
        first, *others = text.split(PLUS)
        extras: list[Extra] = []
        for word in others:
            if BUILD.fullmatch(word) and extras:
                extras[-1] = Extra(extras[-1].name, f"{extras[-1].version}{PLUS}{word}")
            else:
                match = EXTRA.fullmatch(word)
                extras.append(Extra(*match.groups()) if match else Extra(word, ""))
        return cls(first, tuple(extras))

    def __str__(self) -> str:
        return PLUS.join((self.slice, *map(str, self.extras)))

    @property
    def is_slice(self) -> bool:
        """Return whether the set is a dated slice without changes."""
        return not self.extras

    @property
    def changes(self) -> tuple[Extra, ...]:
        """The packages that differ from the slice, without the Python and the host."""
        return tuple(each for each in self.extras if each.name not in (PYTHON, HOST))

    def on_python(self, version: str) -> SetKey:
        """The same set on another Python."""
        return self.plus(PYTHON, version)

    def plus(self, name: str, version: str = "") -> SetKey:
        return self._replace(extras=(*self.extras, Extra(name, version)))

    def without(self, name: str) -> SetKey:
        return self._replace(extras=tuple(each for each in self.extras if each.name != name))


def moved_key(base: str, pins: Mapping[str, str]) -> str:
    """The name of a set with some packages moved, in alphabetical order."""
    key = SetKey.parse(base)
    for name, version in sorted(pins.items()):
        key = key.plus(name, version)
    return str(key)


class CellKey(NamedTuple):
    """The name of a cell: file name, report anchor, and argument of commands."""

    set: str
    case: str

    @classmethod
    def parse(cls, text: str) -> CellKey:
        """Read ``SET__CASE``.

        Raises:
            ValueError: the text is not of this form.
        """
        version_set, _, case = text.partition(SEPARATOR)
        if not version_set or not case:
            raise ValueError(f"{text!r} is not a cell; expected SET{SEPARATOR}CASE")
        return cls(version_set, case)

    def __str__(self) -> str:
        return f"{self.set}{SEPARATOR}{self.case}"


class EnvironmentKey(NamedTuple):
    """The name of an environment: the digest of its lock, and its build of torch."""

    lock: str
    backend: str

    @classmethod
    def parse(cls, text: str) -> EnvironmentKey:
        lock, _, backend = text.partition("-")
        return cls(lock, backend)

    def __str__(self) -> str:
        return f"{self.lock}-{self.backend}"


def local_version(version: str) -> str:
    """The build that a version names, e.g. ``cu128`` for ``2.8.0+cu128``; empty if it names none."""
    return version.partition(PLUS)[2]


def without_local(version: str) -> str:
    """The version without its build: ``2.8.0`` for ``2.8.0+cu128``."""
    return version.partition(PLUS)[0]
