"""Turns the table of a script, ``[scripts.NAME]`` or ``[tool.ftmatrix]``, into a declaration, and checks its words."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from cases.flows.script_metrics import Bound
from cases.flows.scripts import AdapterRules, Script
from cases.space.options import WorldSize
from matrix.errors import UserError
from matrix.run.scripts import script_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.run.scripts.script_metadata import ScriptMetadata

KEYS: Final = ("command", "ranks", "writes", "metrics", "adapter", "timeout_s", "why")
TABLE_KEYS: Final = (*KEYS, "script", "dependencies", "requires-python")  # of a file of tables
BOUND_KEYS: Final = ("min", "max", "decreases", "increases")
ADAPTER_KEYS: Final = ("folder", "base", "unchanged")
LONGEST_S: Final = 86_400.0
INTERPRETERS: Final = ("python", "python3", "{python}")


@dataclass(frozen=True, kw_only=True)
class ScriptTable:
    """A table of values by key. ``at`` names it in messages."""

    values: Mapping[str, Any]
    at: str

    def only(self, *known: str) -> None:
        """Check that every key is known.

        Raises:
            UserError: a key is not.
        """
        for key in sorted(self.values.keys() - set(known)):
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"expected {', '.join(known)}"
            raise UserError(f"{self.at}.{key}: unknown key; {hint}")

    def words(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise UserError(f"{self.at}.{key}: expected a list of words, got {value!r}")
        return tuple(value)

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise UserError(f"{self.at}.{key}: expected text in quotes, got {value!r}")
        return value

    def number(self, key: str) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN
            raise UserError(f"{self.at}.{key}: expected a number, got {value!r}")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise UserError(f"{self.at}.{key}: expected true or false, got {value!r}")
        return value

    def table(self, key: str) -> ScriptTable:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise UserError(f"{self.at}.{key}: expected a table, got {value!r}")
        return ScriptTable(values=value, at=f"{self.at}.{key}")


def script(name: str, table: ScriptTable, *, folder: Path, metadata: ScriptMetadata, file: Path | None) -> Script:
    """The declaration of a script. Its table precedes the one in the metadata of its file, key by key.

    Raises:
        UserError: a value is wrong, or a file or a program of the command does not exist.
    """
    table.only(*TABLE_KEYS)
    ScriptTable(values=metadata.table, at=f"{file}: tool.{script_metadata.TOOL}").only(*KEYS)
    merged = ScriptTable(values={**metadata.table, **table.values}, at=table.at)
    own = script_metadata.requirements([*merged.words("dependencies")], f"{table.at}.dependencies")
    python = script_metadata.python_specifier(table.values.get("requires-python", ""), f"{table.at}.requires-python")
    ranks = merged.values.get("ranks", 1)
    if type(ranks) is not int or ranks not in get_args(WorldSize):
        sizes = ", ".join(map(str, get_args(WorldSize)))
        raise UserError(f"{merged.at}.ranks: expected one of {sizes}, got {ranks!r}")
    command = merged.words("command") or default_command(merged, ranks, file)
    if file is None and any("{script}" in word for word in command):
        raise UserError(f'{merged.at}.command: {{script}} stands for no file; add script = "FILE"')
    check_program(command, folder, merged.at)
    scripts = [file] if file else script_files(command, folder, merged.at)
    return Script(
        name=name,
        command=command,
        ranks=ranks,
        writes=inside(merged.words("writes"), f"{merged.at}.writes"),
        folder=str(folder),
        why=merged.text("why", Script.why),
        script=str(file or ""),
        metrics=bounds(merged.table("metrics")),
        adapter=adapter(merged),
        timeout_s=timeout_s(merged),
        dependencies=(*metadata.dependencies, *own),
        requires_python=",".join(filter(None, (metadata.requires_python, python))),
        digest=digest(scripts),
        source=table.at,
    )


def default_command(table: ScriptTable, ranks: int, file: Path | None) -> tuple[str, ...]:
    """``python FILE``, or ``torchrun FILE`` for several ranks."""
    if file is None or "command" in table.values:
        raise UserError(f"{table.at}.command: expected a list of words, the first of which is a program")
    if ranks == 1:
        return ("{python}", "{script}")
    return ("{python}", "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "{script}")


def check_program(command: Sequence[str], folder: Path, at: str) -> None:
    """Check a program that is given by its path.

    Raises:
        UserError: the program does not exist or may not be executed.
    """
    program = command[0]
    if os.sep not in program or "{" in program:
        return
    path = folder / program
    if not path.is_file():
        raise UserError(f"{at}.command: {program}: there is no such program; correct its path")
    if not os.access(path, os.X_OK):
        raise UserError(f"{at}.command: {program}: you may not execute it; run `chmod +x {program}`")


def script_files(command: Sequence[str], folder: Path, at: str) -> list[Path]:
    """The file that a command runs: the first word that ends in .py or .sh, unless ``-m`` or ``-c`` comes before it.

    Raises:
        UserError: the file cannot be read.
    """
    for word in command:
        if word in {"-m", "--module", "-c"} and command[0] in INTERPRETERS and "torch.distributed.run" not in command:
            return []
        if word.endswith((".py", ".sh")) and not word.startswith("-"):
            if "{" in word:
                return []
            try:
                script_metadata.source(folder / word)
            except UserError as error:
                raise UserError(f"{at}.command: {error}") from None
            return [folder / word]
    return []


def missing_program(script: Script, *, path: str) -> str:
    """The program of a script if no folder of ``path`` has it; else empty."""
    program = script.command[0]
    if os.sep in program or "{" in program or shutil.which(program, path=path):
        return ""
    return program


def inside(names: tuple[str, ...], at: str) -> tuple[str, ...]:
    """Check names of files below ``{out}``."""
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts or not name:
            raise UserError(f"{at}: {name!r}: expected a path below {{out}}, without ..")
    return names


def timeout_s(table: ScriptTable) -> float:
    value = table.number("timeout_s")
    if value is None:
        return Script.timeout_s
    if not 0 < value <= LONGEST_S:
        raise UserError(f"{table.at}.timeout_s: expected seconds above 0 and at most {LONGEST_S:g}, got {value:g}")
    return value


def bounds(table: ScriptTable) -> dict[str, Bound]:
    return {name: bound(table.table(name)) for name in table.values}


def bound(table: ScriptTable) -> Bound:
    table.only(*BOUND_KEYS)
    found = Bound(
        min=table.number("min"),
        max=table.number("max"),
        decreases=table.flag("decreases"),
        increases=table.flag("increases"),
    )
    if found.decreases and found.increases:
        raise UserError(f"{table.at}: it cannot both decrease and increase; keep one")
    if found.min is not None and found.max is not None and found.min > found.max:
        raise UserError(f"{table.at}: min {found.min:g} is above max {found.max:g}; swap them")
    return found


def adapter(table: ScriptTable) -> AdapterRules | None:
    """The rules for the saved adapter: the name of its folder, or a table."""
    if "adapter" not in table.values:
        return None
    if isinstance(table.values["adapter"], str):
        rules = ScriptTable(values={"folder": table.values["adapter"]}, at=f"{table.at}.adapter")
    else:
        rules = table.table("adapter")
    rules.only(*ADAPTER_KEYS)
    folder = rules.text("folder", ".")
    inside((folder,), f"{rules.at}.folder")
    return AdapterRules(folder=folder, base=rules.text("base"), unchanged=rules.words("unchanged"))


def digest(scripts: Sequence[Path]) -> str:
    """A digest of the user's files, so that an edit makes stored outcomes stale; empty without a file."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in scripts)).hexdigest()[:12] if scripts else ""
