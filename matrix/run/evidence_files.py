"""Keeps the logs of cells that are not green next to the outcomes, without paths and names of this machine."""

from __future__ import annotations

import getpass
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cases.runtime.hang_analysis import FILE as AUTOPSY
from matrix.run import secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KINDS: Final = {
    ".log": "log",
    ".stack": "stacks",
    ".collectives": "collectives",
}  # suffixes of the files that a rank writes
LONGEST: Final = 200_000  # characters of a stored log; only the end of a longer one is kept


def scrubbed(text: str, places: Mapping[str, str]) -> str:
    """Text without tokens, user names and paths of this machine; ``places`` maps paths to placeholders."""
    return scrubber(places)(text)


def scrubber(places: Mapping[str, str]) -> Callable[[str], str]:
    """The function that scrubs a text. It looks up the environment once, for the hundreds of texts of an outcome."""
    values, home, user = secrets.secret_values(os.environ), home_folder(), user_name()
    longest_first = sorted(places, key=len, reverse=True)

    def scrub(text: str) -> str:
        text = secrets.without_secrets(text, values)  # first, or a path within a secret would be replaced
        for path in longest_first:
            text = text.replace(path, places[path])
        return without_user(text, home=home, user=user)

    return scrub


def without_user(text: str, *, home: str, user: str) -> str:
    """Text without the user's home folder and name.

    The name is replaced only in paths and in addresses such as ``me@host``, because a user may be called ``test`` or
    ``train``. The root folder is never replaced: containers set ``HOME=/``.
    """
    if home.strip("/"):
        text = re.sub(rf"{re.escape(home.rstrip('/'))}(?![\w.-])", "~", text)
    if user and user != "root":
        text = re.sub(rf"(?<=[/\\]){re.escape(user)}(?=[/\\])|(?<![\w.-]){re.escape(user)}(?=@)", "user", text)
    return text


def home_folder() -> str:
    """The user's home folder; empty if there is none, as for a user id without a passwd entry."""
    try:
        return str(Path.home())
    except (KeyError, RuntimeError):
        return ""


def user_name() -> str:
    """The user's name; empty for a user id without a passwd entry, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def scrubbed_tail(text: str, length: int, places: Mapping[str, str]) -> str:
    """At most the last ``length`` characters of the scrubbed text. The cut leaves no part of a secret."""
    return scrubbed(text[-length - secrets.LONGEST :], places)[-length:]


def scrubbed_values(value: Any, places: Mapping[str, str]) -> Any:
    """Plain data with every text scrubbed, at any depth."""
    return changed_texts(value, scrubber(places))


def changed_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: changed_texts(each, change) for name, each in value.items()}
    if isinstance(value, list):
        return [changed_texts(each, change) for each in value]
    return value


def keep(folder: Path, target: Path, places: Mapping[str, str]) -> dict[str, str]:
    """Copy a cell's logs and stacks to ``target``, except empty ones; return file names by kind of file."""
    paths: dict[str, str] = {}
    of_ranks = (path for path in folder.glob("rank-*.*") if path.suffix in KINDS)
    for path in sorted([*of_ranks, *folder.glob(AUTOPSY)]):
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        if text:
            target.mkdir(parents=True, exist_ok=True)
            (target / path.name).write_text(scrubbed_tail(text, LONGEST, places) + "\n", encoding="utf-8")
            paths["autopsy" if path.name == AUTOPSY else f"{path.stem.replace('-', ' ')} {KINDS[path.suffix]}"] = (
                path.name
            )
    return paths
