"""Reads the user's scripts from a TOML file; each becomes a case ``script-<name>``.

    [scripts.my_sft]
    command = ["torchrun", "--nproc-per-node", "2", "train.py", "--output_dir", "{out}"]
    ranks = 2                                  # the GPUs it needs
    writes = ["adapter_model.safetensors"]     # below {out}; must be there afterwards
    why = "what we train every week"

Commands start in the file's folder, in the environment of each set, without a network for models and data
(HF_HUB_OFFLINE), and have five minutes. They must write something into {out}: that is what they are judged by.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final, get_args

from cases.flows.scripts import PACKAGED, Script
from cases.space.options import WorldSize
from matrix.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = re.compile(r"[a-z0-9_]+")
FIELDS: Final = ("command", "ranks", "writes", "why")


def load(path: Path) -> tuple[Script, ...]:
    """The scripts of a file.

    Raises:
        UserError: it cannot be read, or a script is malformed.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("scripts", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"--scripts {path}: {error}") from None
    if not isinstance(tables, dict) or not tables:
        raise UserError(f"--scripts {path}: no table [scripts.NAME] in it")
    return tuple(script(name, row, path) for name, row in tables.items())


def script(name: str, row: Any, path: Path) -> Script:
    at = f"--scripts {path}: scripts.{name}"
    if not NAME.fullmatch(name) or name in {each.name for each in PACKAGED}:
        raise UserError(f"{at}: a name is made of small letters, digits and _, and is not one of the packaged scripts")
    if not isinstance(row, dict) or set(row) - set(FIELDS):
        raise UserError(f"{at}: expected {', '.join(FIELDS)}")
    command, writes = words(row, "command", at), words({"writes": [], **row}, "writes", at)
    if not command:
        raise UserError(f"{at}.command: expected a list of words, the first of which is a program")
    ranks = row.get("ranks", 1)
    if type(ranks) is not int or ranks not in get_args(WorldSize):
        raise UserError(f"{at}.ranks: expected one of {', '.join(map(str, get_args(WorldSize)))}, got {ranks!r}")
    why = str(row.get("why", Script.why))
    folder = str(path.absolute().parent)
    return Script(name=name, command=command, ranks=ranks, writes=writes, folder=folder, why=why)


def words(row: dict[str, Any], key: str, at: str) -> tuple[str, ...]:
    found = row.get(key)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise UserError(f"{at}.{key}: expected a list of words, got {found!r}")
    return tuple(found)
