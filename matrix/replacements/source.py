"""Reads the words of ``--with``: a git reference, a local checkout, a wheel, or a release."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from matrix.errors import UserError
from matrix.versions.sets import exact_version

NAMED: Final = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?P<operator>==|=|@)\s*(?P<rest>.+)")
GIT: Final = "git+"
SCHEMES: Final = ("https", "ssh", "http", "file")  # others of git run a program of the caller's choice
FORMS: Final = "peft=git+https://HOST/OWNER/peft@BRANCH, a folder with a checkout, a wheel, or peft==0.18.1"


class SourceKind(Enum):
    """Where a replacement comes from."""

    GIT = "git"
    CHECKOUT = "checkout"
    WHEEL = "wheel"
    RELEASE = "release"


@dataclass(frozen=True, kw_only=True)
class ReplacementSource:
    """One word of ``--with``.

    Attributes:
        kind: where the package comes from.
        place: the URL of a repository, a path, or a version.
        name: the normalised name of the package; empty if the word does not state it.
        reference: a branch, tag or commit of a repository.
    """

    kind: SourceKind
    place: str
    name: str = ""
    reference: str = ""

    @property
    def path(self) -> Path:
        return Path(self.place).expanduser().absolute()

    @property
    def word(self) -> str:
        """The word of ``--with``."""
        if self.kind is SourceKind.RELEASE:
            return f"{self.name}=={self.place}"
        name = f"{self.name}=" if self.name else ""
        return f"{name}{GIT}{self.place}@{self.reference}" if self.kind is SourceKind.GIT else f"{name}{self.place}"

    @property
    def public_word(self) -> str:
        """The word without a user name and a token of the URL."""
        return self.word.replace(self.place, self.public) if self.kind is SourceKind.GIT else self.word

    @property
    def option(self) -> str:
        """The option, for error messages."""
        return f"--with {self.public_word}"

    @property
    def public(self) -> str:
        """The URL without a user name and a token."""
        parts = urlsplit(self.place)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def parsed(words: tuple[str, ...]) -> tuple[ReplacementSource, ...]:
    """The sources that ``--with`` names.

    Raises:
        UserError: a word is malformed, a path is missing, or two words name the same package.
    """
    found = tuple(source(word.strip()) for word in words)
    names = [each.name for each in found if each.name]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise UserError(f"--with names {twice} twice; keep one of them")
    return found


def source(word: str) -> ReplacementSource:
    if word.startswith(GIT):
        return git_source(word, name="")
    match = NAMED.fullmatch(word)
    if match is None or Path(word).expanduser().exists():
        return path_source(word, name="")
    name, rest = str(canonicalize_name(match["name"])), match["rest"]
    if match["operator"] == "==":
        return ReplacementSource(kind=SourceKind.RELEASE, name=name, place=exact_version(rest, at=f"--with {word}"))
    return git_source(rest, name=name) if rest.startswith(GIT) else path_source(rest, name=name)


def git_source(text: str, *, name: str) -> ReplacementSource:
    parts = urlsplit(text.removeprefix(GIT))
    path, _, reference = parts.path.partition("@")
    public = parts.netloc.rpartition("@")[2]
    shown = f"--with {GIT}{parts.scheme}://{public}{parts.path}"
    if parts.scheme not in SCHEMES or not path.strip("/") or parts.fragment or parts.query:
        raise UserError(f"{shown}: no address of a git repository; write git+https://HOST/OWNER/REPOSITORY@BRANCH")
    if reference.startswith("-"):
        raise UserError(f"{shown}: {reference} is no branch, tag or commit")
    place = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return ReplacementSource(kind=SourceKind.GIT, place=place, name=name, reference=reference or "HEAD")


def path_source(place: str, *, name: str) -> ReplacementSource:
    path = Path(place).expanduser()
    if not path.exists():
        raise UserError(f"--with {place}: no such file or folder; name {FORMS}")
    if path.is_dir():
        if not any((path / file).is_file() for file in ("pyproject.toml", "setup.py")):
            raise UserError(f"--with {place}: neither a pyproject.toml nor a setup.py is in it; name the checkout")
        return ReplacementSource(kind=SourceKind.CHECKOUT, place=place, name=name)
    try:
        stated = str(parse_wheel_filename(path.name)[0])
    except InvalidWheelFilename:
        raise UserError(f"--with {place}: neither a folder nor a wheel; name {FORMS}") from None
    if name not in {"", stated}:
        raise UserError(f"--with {name}={place}: the wheel has {stated}; correct the name")
    return ReplacementSource(kind=SourceKind.WHEEL, place=place, name=stated)
