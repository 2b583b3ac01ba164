"""``flow=script``: a user's command, which starts its own ranks; its exit code and files decide.

The harness writes the user's declarations to ``scripts.json`` next to this package.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cases.runtime import imported_modules
from cases.space.verdict import Check, Phase, at_least, equal

if TYPE_CHECKING:
    from cases.apply.context import Context

DECLARED = Path(__file__).parents[2] / "scripts.json"
HEADING = "Scripts"
ERROR = re.compile(r"[\w.]*(?<!ChildFailed)Error\b")  # not a launcher's ChildFailedError: the ranks' errors say more
LOG_TAIL = 20_000
POLL_S = 0.05


@dataclass(frozen=True)
class Script:
    """``command`` may contain ``{python}``, the environment's interpreter, and ``{out}``, a new folder to write into.

    ``writes`` are files below ``{out}`` that must exist afterwards and not be empty; ``folder`` is the working
    directory, by default the cell's folder.
    """

    name: str
    command: tuple[str, ...]
    ranks: int = 1
    writes: tuple[str, ...] = ()
    folder: str = ""
    why: str = "a user's command"


class ScriptError(RuntimeError):
    """The command failed; ``log`` is the end of what it printed."""

    def __init__(self, sentence: str, log: str) -> None:
        super().__init__(sentence)
        self.log = log


PACKAGED = (
    Script(
        name="torchrun_lora_ddp",
        command=(
            *("{python}", "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("-m", "cases.alone", "train-lora-ddp-bf16"),
        ),
        ranks=2,
        writes=("checks.json",),
        why="torchrun starts the ranks, and each imports the stack itself",
    ),
)


def known() -> dict[str, Script]:
    """The packaged scripts, and those that the user declared."""
    declared = json.loads(DECLARED.read_text()) if DECLARED.exists() else []
    rows = [
        Script(**{**row, "command": tuple(row["command"]), "writes": tuple(row.get("writes", ()))}) for row in declared
    ]
    return {script.name: script for script in (*PACKAGED, *rows)}


def run(ctx: Context) -> None:
    """Run the command, and check its exit code and its files."""
    script = known()[ctx.options.call]
    ctx.reporter.phase(Phase.FORWARD)
    log = ctx.kept.parent / "script.log"
    try:
        output = run_command(script, ctx, log)
    finally:
        ctx.reporter.modules(sorted(imported_modules.noted_in(modules_file(ctx))))
    with ctx.reporter.observing():
        ctx.reporter.checks(file_checks(script, ctx.kept))
    ctx.reporter.metric("output_bytes", float(len(output)))


def run_command(script: Script, ctx: Context, log: Path) -> str:
    """Run the command and return its output.

    Raises:
        ScriptError: the command does not exist, or its exit code is not 0.
    """
    words = [word.replace("{python}", sys.executable).replace("{out}", str(ctx.kept)) for word in script.command]
    variables = {
        "FTMATRIX_OUT": str(ctx.kept),
        "FTMATRIX_DEVICE": ctx.place.kind,
        imported_modules.FILE: str(modules_file(ctx)),
    }
    with log.open("wb") as sink:
        try:
            child = subprocess.Popen(
                words,
                cwd=script.folder or ctx.kept,
                env={**os.environ, **variables, "PYTHONPATH": path_with(Path(__file__).parents[2])},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise ScriptError(f"{words[0]!r} cannot be started: {error.strerror}", "") from None
        while child.poll() is None:
            ctx.reporter.beat()
            time.sleep(POLL_S)
    output = log.read_text(errors="replace")
    if child.returncode != 0:
        raise ScriptError(f"exit code {child.returncode}: {last_words(output)}", output[-LOG_TAIL:])
    return output


def modules_file(ctx: Context) -> Path:
    """The file in which processes of the command that import ``cases`` note the modules."""
    return ctx.kept.parent / "modules.txt"


def path_with(folder: Path) -> str:
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))


def last_words(output: str) -> str:
    """The last error line of the output, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if ERROR.match(line)]
    return (errors or lines or ["it printed nothing"])[-1]


def file_checks(script: Script, out: Path) -> list[Check]:
    files = [path for path in out.rglob("*") if path.is_file() and path.stat().st_size]
    lacking = [name for name in script.writes if out / name not in files]
    return [
        at_least("files written that are not empty", len(files), 1),
        equal("promised files that are missing or empty", "+".join(lacking) or "none", "none"),
    ]
