"""Reads and writes ``versions.toml``: the versions that are measured together."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from datetime import date, timedelta
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from matrix.errors import UserError
from matrix.keys import SetKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PACKAGED: Final = Path(__file__).with_name("versions.toml")
PACKAGES: Final = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl")
FIELDS: Final = frozenset({"python", "as-of", "why", "default", "pins", "extras"})
KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSet:
    """The six packages at exact versions; the other packages are the newest of the day ``as_of``.

    ``extras`` has further requirements, each with its reason. ``replaced`` has the commits and digests of packages that
    ``--with`` laid over the set.
    """

    key: str
    python: str
    as_of: date
    pins: Mapping[str, str]
    why: str
    extras: Mapping[str, str] = field(default_factory=dict)
    default: bool = False
    replaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def requirements(self) -> tuple[str, ...]:
        return (*(f"{name}=={version}" for name, version in self.pins.items()), *self.extras)


def load(path: Path = PACKAGED) -> tuple[VersionSet, ...]:
    """Every set of the file, in its order.

    Raises:
        UserError: the file cannot be read, or a value is invalid.
    """
    return sets_in(text_of(path), path)


@lru_cache(maxsize=8)  # commands ask for the sets again for every cell
def sets_in(text: str, path: Path) -> tuple[VersionSet, ...]:
    tables = table(parsed_text(text, path), "sets", at=path.name)
    return tuple(version_set(key, tables, at=f"{path.name}: sets") for key in tables)


def parsed(path: Path) -> dict[str, Any]:
    return parsed_text(text_of(path), path)


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the version sets cannot be read: {error}") from error


def parsed_text(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error


def version_set(key: str, tables: Mapping[str, Any], *, at: str) -> VersionSet:
    where = f"{at}.{checked_key(key)}"
    row = table(tables, key, at=at)
    unknown = sorted(row.keys() - FIELDS)
    if unknown:
        raise UserError(f"{where}.{unknown[0]}: unknown; expected one of {', '.join(sorted(FIELDS))}")
    return VersionSet(
        key=key,
        python=python_version(row, at=where),
        as_of=as_of_date(row, at=where),
        pins=pinned(table(row, "pins", at=where), at=f"{where}.pins"),
        why=sentence(row, "why", at=where),
        extras=reasons(row.get("extras", {}), at=f"{where}.extras"),
        default=flag(row, "default", at=where),
    )


def checked_key(key: str) -> str:
    """The key, if it can be a file name and a command-line argument."""
    if not KEY.fullmatch(key) or key in GROUPS:
        raise UserError(f"{key!r}: a set's name has letters, digits and . _ + - only, such as 2025-09+peft0.13.2")
    return key


def table(parent: Mapping[str, Any], key: str, *, at: str) -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        raise UserError(f"{at}.{key}: expected a table, got {value!r}" if value else f"{at}.{key}: missing")
    return value


def sentence(row: Mapping[str, Any], key: str, *, at: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{at}.{key}: expected a sentence, got {value!r}")
    return value


def flag(row: Mapping[str, Any], key: str, *, at: str) -> bool:
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise UserError(f"{at}.{key}: expected true or false, got {value!r}")
    return value


def python_version(row: Mapping[str, Any], *, at: str) -> str:
    value = row.get("python")
    if not isinstance(value, str) or not re.fullmatch(r"3\.\d+", value):
        raise UserError(f'{at}.python: expected a version such as "3.11", got {value!r}')
    return value


def as_of_date(row: Mapping[str, Any], *, at: str) -> date:
    value = row.get("as-of")
    if type(value) is not date:  # a datetime is a date as well, and is refused
        raise UserError(f"{at}.as-of: expected a date such as 2025-09-15, got {value!r}")
    return value


def pinned(row: Mapping[str, Any], *, at: str) -> dict[str, str]:
    for name in row:
        if name not in PACKAGES:
            raise UserError(f"{at}.{name}: not one of the pinned packages ({', '.join(PACKAGES)}); use extras")
    return {name: exact_version(row.get(name), at=f"{at}.{name}") for name in PACKAGES}


def exact_version(value: object, *, at: str) -> str:
    try:
        return str(Version(value)) if isinstance(value, str) else missing_version(value, at)
    except InvalidVersion as error:
        raise UserError(f'{at}: expected an exact version such as "2.8.0", got {value!r}') from error


def missing_version(value: object, at: str) -> str:
    raise UserError(f'{at}: expected an exact version such as "2.8.0", got {value!r}')


def reasons(row: object, *, at: str) -> dict[str, str]:
    if not isinstance(row, dict):
        raise UserError(f"{at}: expected a table of requirement = reason, got {row!r}")
    for line in row:
        try:
            Requirement(line)
        except InvalidRequirement as error:
            raise UserError(f"{at}.{line}: not a requirement such as setuptools<81") from error
    return {line: sentence(row, line, at=at) for line in row}


def select(sets: Iterable[VersionSet], selection: str) -> tuple[VersionSet, ...]:
    """The sets of one of ``GROUPS``, or of keys separated by commas, in the order of the file.

    Raises:
        UserError: a key is unknown, or none is given.
    """
    by_key = {each.key: each for each in sets}
    if selection in GROUPS:
        return GROUPS[selection](tuple(by_key.values()))
    keys = [key.strip() for key in selection.split(",") if key.strip()]
    if not keys:
        raise UserError(f"no version set named; choose {', '.join(GROUPS)}, or keys separated by commas")
    for key in keys:
        find(key, by_key)
    return tuple(each for each in by_key.values() if each.key in keys)


def newest(sets: Iterable[VersionSet]) -> tuple[VersionSet, ...]:
    """The default set with the latest date."""
    return tuple(sorted((each for each in sets if each.default), key=lambda each: each.as_of)[-1:])


def two_years_apart(sets: Iterable[VersionSet]) -> tuple[VersionSet, VersionSet]:
    """The newest default set, and the quarterly set that is closest to two years older."""
    everything = tuple(sets)
    (last,) = newest(everything)
    target = last.as_of - timedelta(days=2 * 365)
    quarterly = (each for each in everything if SetKey.parse(each.key).is_slice)
    return min(quarterly, key=lambda each: abs(each.as_of - target)), last


# Selections by one word. A key with a plus is a quarterly set with another version of a package.
GROUPS: Final[Mapping[str, Callable[[tuple[VersionSet, ...]], tuple[VersionSet, ...]]]] = {
    "default": lambda sets: tuple(each for each in sets if each.default),
    "newest": newest,
    "slices": lambda sets: tuple(each for each in sets if SetKey.parse(each.key).is_slice),
    "all": lambda sets: sets,
}


def find(key: str, by_key: Mapping[str, VersionSet]) -> VersionSet:
    if key not in by_key:
        near = get_close_matches(key, by_key, n=4, cutoff=0.6) or list(by_key)
        raise UserError(f"unknown version set {key!r}; did you mean {' or '.join(near)}? `ftmatrix sets` lists all")
    return by_key[key]


def with_pins(base: VersionSet, pins: Mapping[str, str], *, key: str, as_of: date, why: str) -> VersionSet:
    """A copy of the set with some pins replaced. It is not a default set."""
    for name in pins:
        if name not in PACKAGES:
            raise UserError(f"{name}: not one of the pinned packages ({', '.join(PACKAGES)})")
    exact = {name: exact_version(version, at=f"{name}==") for name, version in pins.items()}
    return VersionSet(
        key=checked_key(key),
        python=base.python,
        as_of=as_of,
        pins={**base.pins, **exact},
        why=why,
        extras=base.extras,
    )


def parsed_pins(words: Iterable[str]) -> dict[str, str]:
    """Versions by package from words such as ``peft==0.13.0``."""
    pins: dict[str, str] = {}
    for word in words:
        name, separator, version = word.partition("==")
        if not separator:
            raise UserError(f"{word!r}: expected an exact pin such as peft==0.13.0")
        pins[name.strip().lower()] = exact_version(version.strip(), at=word)
    return pins


def write(added: VersionSet, *, path: Path = PACKAGED) -> None:
    """Append the set to the file, whose comments and order stay."""
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    tables = document["sets"]
    if not isinstance(tables, dict):
        raise UserError(f"{path.name}.sets: expected a table")
    if added.key in tables:
        raise UserError(f"{path.name}: sets.{added.key} exists; choose another name, or edit it there")
    tables[added.key] = as_table(added)
    save(document, path)


def as_table(version_set: VersionSet) -> tomlkit.items.Table:
    row = tomlkit.table()
    row["python"] = version_set.python
    row["as-of"] = version_set.as_of
    row["why"] = version_set.why
    row["pins"] = dict(version_set.pins)
    if version_set.extras:
        row["extras"] = dict(version_set.extras)
    return row


def save(document: tomlkit.TOMLDocument, path: Path) -> None:
    """Replace the file in one step, because another run may be reading it."""
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(tomlkit.dumps(document).rstrip() + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise UserError(
            f"{path} cannot be written ({error.strerror}); copy it and name the copy with --versions"
        ) from error
