"""Translates this machine's pip configuration into variables of uv, which does not read it.

The configuration is read without pip, from the files and variables that pip documents
(https://pip.pypa.io/en/stable/topics/configuration/). uv variables that the user has set take precedence.
"""

from __future__ import annotations

import configparser
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECTIONS: Final = ("global", "install")  # the later wins, as in `pip install`
FALSE: Final = frozenset({"", "0", "false", "no", "off", "n", "f"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Variables and arguments that make uv use the same indexes as pip."""

    variables: Mapping[str, str]
    no_index: bool = False
    notes: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("--no-index",) if self.no_index else ()


def pip_settings(environ: Mapping[str, str], *, files: tuple[Path, ...] | None = None) -> dict[str, str]:
    """The options of pip by their long names, such as ``index-url``."""
    settings: dict[str, str] = {}
    for path in pip_files(environ) if files is None else files:
        settings |= file_settings(path)
    for name, value in environ.items():
        if name.startswith("PIP_") and value:
            settings[option_name(name.removeprefix("PIP_"))] = value
    return settings


def pip_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The configuration files that exist, in the order in which they override each other."""
    chosen = environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return ()
    return tuple(path for path in candidates(environ, chosen) if path.is_file())


def candidates(environ: Mapping[str, str], chosen: str | None) -> Iterator[Path]:
    home = home_folder(environ)
    for folder in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if home and not (chosen and Path(chosen).exists()):  # pip skips the user's files if PIP_CONFIG_FILE names one
        yield home / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if chosen:
        yield Path(chosen)


def home_folder(environ: Mapping[str, str]) -> Path | None:
    """The user's home; None for a user whom the machine does not know, as in containers."""
    try:
        return Path(environ.get("HOME") or Path.home())
    except (KeyError, RuntimeError):
        return None


def file_settings(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise UserError(f"{path}: pip's configuration cannot be read ({problem}); correct or remove it") from error
    return {
        option_name(name): value
        for section in SECTIONS
        if parser.has_section(section)
        for name, value in parser.items(section)
        if value
    }


def option_name(name: str) -> str:
    plain = name.lower().replace("_", "-").removeprefix("--")
    return {"default-timeout": "timeout"}.get(plain, plain)  # pip's older name, still the more common one


def translate(settings: Mapping[str, str], environ: Mapping[str, str]) -> Translation:
    """The variables of uv for pip's settings, except those that the user has set."""
    links, missing = split_by_existence(settings.get("find-links", "").split())
    extra = settings.get("extra-index-url", "").split()
    variables = {
        "UV_DEFAULT_INDEX": settings.get("index-url", ""),
        "UV_INDEX": " ".join(extra),
        # pip takes the best version of all its indexes; by default, uv uses only the first index that has the package.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if extra else "",
        "UV_FIND_LINKS": ",".join(links),
        "UV_INSECURE_HOST": " ".join(settings.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": settings.get("timeout", ""),
        "SSL_CERT_FILE": settings.get("cert", ""),
        "SSL_CLIENT_CERT": settings.get("client-cert", ""),
        "ALL_PROXY": settings.get("proxy", ""),
    }
    return Translation(
        variables={name: value for name, value in variables.items() if value and not is_set(name, environ)},
        no_index=settings.get("no-index", "").lower() not in FALSE,
        notes=tuple(f"pip's find-links names {place}, which does not exist; it is ignored" for place in missing),
    )


SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL",),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL",),
    "UV_HTTP_TIMEOUT": ("UV_REQUEST_TIMEOUT", "HTTP_TIMEOUT"),
    "SSL_CERT_FILE": ("SSL_CERT_DIR",),
    "ALL_PROXY": ("all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"),
}


def is_set(name: str, environ: Mapping[str, str]) -> bool:
    return any(environ.get(each) for each in (name, *SYNONYMS.get(name, ())))


def split_by_existence(places: list[str]) -> tuple[list[str], list[str]]:
    """Places that exist or are remote, and missing folders. pip ignores missing folders, uv fails on them."""
    existing: list[str] = []
    missing: list[str] = []
    for place in places:
        folder = local_folder(place)
        if folder is None:
            existing.append(place)
        elif folder.exists():
            existing.append(str(folder.absolute()))  # absolute, because uv runs in another folder
        else:
            missing.append(place)
    return existing, missing


def local_folder(place: str) -> Path | None:
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(place).expanduser()
