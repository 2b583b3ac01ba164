"""Reads the user's scripts from a TOML file; each becomes a case ``script-<name>``.

    [scripts.my_sft]
    command = ["torchrun", "--nproc-per-node", "2", "train.py", "--output_dir", "{out}"]
    ranks = 2                                  # the GPUs it needs
    writes = ["adapter_model.safetensors"]     # files in {out} that must exist afterwards
    why = "what we train every week"

Commands start in the file's folder, in the environment of each set, with HF_HUB_OFFLINE set, and end after five
minutes at the latest. A command passes if it writes the declared files, or at least one file, into {out}.
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
    """Read the scripts of a file.

    Raises:
        UserError: the file cannot be read, or a script is malformed.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("scripts", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"--scripts {path}: {error}") from None
    if not isinstance(tables, dict) or not tables:
        raise UserError(f"--scripts {path}: the file has no table; add [scripts.NAME]")
    return tuple(script(name, row, path) for name, row in tables.items())


def script(name: str, row: Any, path: Path) -> Script:
    location = f"--scripts {path}: scripts.{name}"
    if not NAME.fullmatch(name) or name in {each.name for each in PACKAGED}:
        raise UserError(f"{location}: use lower-case letters, digits and _, and no name of a packaged script")
    if not isinstance(row, dict) or set(row) - set(FIELDS):
        raise UserError(f"{location}: expected {', '.join(FIELDS)}")
    command, writes = words(row, "command", location), words({"writes": [], **row}, "writes", location)
    if not command:
        raise UserError(f"{location}.command: expected a list of words, the first of which is a program")
    ranks = row.get("ranks", 1)
    if type(ranks) is not int or ranks not in get_args(WorldSize):
        raise UserError(f"{location}.ranks: expected one of {', '.join(map(str, get_args(WorldSize)))}, got {ranks!r}")
    why = str(row.get("why", Script.why))
    folder = str(path.absolute().parent)
    return Script(name=name, command=command, ranks=ranks, writes=writes, folder=folder, why=why)


def words(row: dict[str, Any], key: str, location: str) -> tuple[str, ...]:
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UserError(f"{location}.{key}: expected a list of words, got {value!r}")
    return tuple(value)
