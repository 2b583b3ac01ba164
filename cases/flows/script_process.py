"""Runs a command of a user's script, and collects its output and the exceptions that ended its Python processes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HOOK = str(Path(__file__).with_name("script_hook"))
DEATHS, STACKS_AT = "FTMATRIX_DEATHS", "FTMATRIX_STACKS_AT"  # as the hook names them
POLL_S = 0.05


@dataclass(frozen=True)
class ScriptDeath:
    """The exception that ended a Python process. ``rank`` is None for a process that no launcher numbered.

    ``at`` is in seconds since the epoch; ``file`` is that of the innermost frame.
    """

    type: str
    message: str
    traceback: str
    rank: int | None
    pid: int
    at: float
    file: str


@dataclass(frozen=True)
class FinishedScript:
    """``code`` is negative for a signal, as in ``subprocess``, and None if the command cannot be started.

    ``output`` has stdout and stderr; of a command that cannot be started, the reason.
    """

    code: int | None
    output: str
    deaths: tuple[ScriptDeath, ...] = ()


def run(
    words: Sequence[str], *, folder: str, variables: Mapping[str, str], log: Path, beat: Callable[[], None]
) -> FinishedScript:
    """Run a command to its end, and call ``beat`` often; the supervisor ends a command that takes too long.

    Args:
        words: the program and its arguments.
        folder: the working directory.
        variables: environment variables in addition to those of this process.
        log: the file that gets the output.
        beat: proves that this rank is alive.
    """
    deaths = log.with_suffix(".deaths")
    deaths.mkdir(exist_ok=True)
    with log.open("wb") as sink:
        try:
            child = subprocess.Popen(
                words,
                cwd=folder,
                env={**os.environ, **variables, DEATHS: str(deaths)},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            return FinishedScript(None, f"{words[0]!r} cannot be started: {error.strerror}")
        while child.poll() is None:
            beat()
            time.sleep(POLL_S)
    return FinishedScript(child.returncode, log.read_text(errors="replace"), read_deaths(deaths))


def read_deaths(folder: Path) -> tuple[ScriptDeath, ...]:
    """The recorded exceptions, the earliest first."""
    found = (ScriptDeath(**json.loads(path.read_text())) for path in folder.glob("*.json"))
    return tuple(sorted(found, key=lambda each: each.at))
