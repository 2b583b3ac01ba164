"""Runs the scripts of findings in installed environments, isolated from this project and from each other."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix import processes
from matrix.evidence import Evidence
from matrix.known.script_runs import ScriptRun
from matrix.run.evidence_files import scrubbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from matrix.environments.environment import Environment
    from matrix.processes import CommandRunner
    from matrix.versions.sets import VersionSet

    Install = Callable[[VersionSet], Environment | Evidence]

LIMIT_S: Final = 600.0
LONGEST_LINE: Final = 300
KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
OUTER: Final = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, kw_only=True)
class ScriptWork:
    """The scripts to run, the machine in words, and the means. ``is_known`` tells which runs are not needed."""

    scripts: Mapping[str, Path]
    hardware: str
    install: Install
    environ: Mapping[str, str]
    workers: int = 1
    call: CommandRunner = processes.call
    is_known: Callable[[str, str, str], bool] = lambda *_: False  # finding, set, digest of the lock
    say: Callable[[str], None] = print


def measure(sets: Sequence[VersionSet], work: ScriptWork) -> Iterator[ScriptRun]:
    """Run each script on each set. A set that cannot be installed is left out, with a message."""
    for version_set in sets:
        environment = work.install(version_set)
        if isinstance(environment, Evidence):
            work.say(f"{version_set.key} cannot be installed: {environment.reason}")
            continue
        try:
            missing = [each for each in work.scripts if not work.is_known(each, version_set.key, environment.lock)]
            yield from in_environment(missing, environment, work)
        finally:
            environment.release()


def in_environment(findings: Iterable[str], environment: Environment, work: ScriptWork) -> Iterator[ScriptRun]:
    with ThreadPoolExecutor(work.workers) as pool:
        yield from pool.map(partial(run, environment=environment, work=work), findings)


def run(finding: str, *, environment: Environment, work: ScriptWork) -> ScriptRun:
    """Run a script in a new folder, with the environment's interpreter in isolated mode."""
    script = work.scripts[finding]
    with tempfile.TemporaryDirectory() as folder:
        outer = {name: work.environ[name] for name in KEPT if name in work.environ}
        variables = environment.variables({**OUTER, **outer, "HOME": folder, "TMPDIR": folder})
        own = Path(folder) / script.name
        own.write_bytes(content := script.read_bytes())
        began, now = time.monotonic(), datetime.now(UTC).replace(microsecond=0)
        argv = [str(environment.python), "-I", str(own)]
        finished = work.call(argv, timeout_s=LIMIT_S, env=variables, cwd=Path(folder))
        places = {str(environment.root): "<environment>", folder: "<folder>"}
    return ScriptRun(
        finding=finding,
        script=script.name,
        sha256=sha256(content).hexdigest(),
        set=environment.key,
        lock=environment.lock,
        exit_code=finished.exit_code,
        line=answer_line(scrubbed(finished.log, places)),
        seconds=round(time.monotonic() - began, 1),
        on=now,
        hardware=work.hardware,
    )


def answer_line(log: str) -> str:
    """The line with the found and the expected value, or else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()] or [""]
    answers = [line for line in lines if "found " in line and "expected " in line]
    return (answers or lines)[-1][:LONGEST_LINE]
