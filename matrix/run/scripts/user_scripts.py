"""Reads the user's scripts; each becomes a case ``script-<name>``. ``docs/scripts.md`` documents the format.

``--scripts`` names Python scripts, with declarations in their inline metadata (PEP 723), and TOML files with a table
for each command:

    [scripts.my_sft]
    command = ["torchrun", "--nproc-per-node", "2", "train.py", "--output_dir", "{out}"]
    ranks = 2                                  # the GPUs it needs
    writes = ["adapter_model.safetensors"]     # files in {out} that must exist afterwards
    why = "what we train every week"

Commands start in the folder of the file, in the environment of each set, with HF_HUB_OFFLINE set. A command passes if
it writes the declared files, or at least one file, into {out}, and every declared bound holds.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

from cases.flows.scripts import PACKAGED, Script
from matrix.errors import UserError
from matrix.run.scripts import script_metadata, script_table
from matrix.run.scripts.script_metadata import ScriptMetadata
from matrix.run.scripts.script_table import ScriptTable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME: Final = re.compile(r"[a-z0-9_]+")


def load_all(paths: Iterable[Path]) -> tuple[Script, ...]:
    """Read the scripts of several files.

    Raises:
        UserError: a file cannot be read, a script is malformed, or two scripts have the same name.
    """
    found: dict[str, Script] = {}
    for script in (script for path in paths for script in load(path)):
        if script.name in found:
            raise UserError(
                f"{script.source}: {found[script.name].source} has the same name, {script.name}; name one otherwise"
            )
        found[script.name] = script
    return tuple(found.values())


def load(path: Path) -> tuple[Script, ...]:
    """Read the scripts of a file: one for a Python script, one for each table of a TOML file.

    Raises:
        UserError: the file cannot be read, or a script is malformed.
    """
    return (of_python(path),) if path.suffix == ".py" else of_tables(path)


def of_python(path: Path) -> Script:
    metadata = script_metadata.read(path)
    name = checked_name(re.sub(r"[^a-z0-9_]", "_", path.stem.lower()), f"--scripts {path}")
    table = ScriptTable(values={}, at=f"--scripts {path}: tool.{script_metadata.TOOL}")
    file = path.absolute()
    return script_table.script(name, table, folder=file.parent, metadata=metadata, file=file)


def of_tables(path: Path) -> tuple[Script, ...]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("scripts", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"--scripts {path}: {error}") from None
    if not isinstance(tables, dict) or not tables:
        raise UserError(f"--scripts {path}: the file has no table; add [scripts.NAME]")
    return tuple(of_table(name, row, path) for name, row in tables.items())


def of_table(name: str, row: Any, path: Path) -> Script:
    location = f"--scripts {path}: scripts.{name}"
    checked_name(name, location)
    if not isinstance(row, dict):
        raise UserError(f"{location}: expected a table, got {row!r}")
    table, folder = ScriptTable(values=row, at=location), path.absolute().parent
    named = table.text("script")
    file = folder / named if named else None
    metadata = script_metadata.read(file) if file else ScriptMetadata()
    return script_table.script(name, table, folder=folder, metadata=metadata, file=file)


def checked_name(name: str, location: str) -> str:
    if not NAME.fullmatch(name) or name in {each.name for each in PACKAGED}:
        raise UserError(f"{location}: use lower-case letters, digits and _, and no name of a packaged script")
    return name
