"""``ftmatrix known --findings --reproduce``: runs the scripts of findings and adds the results to a record.

Exit codes: 0 every script gave an answer, 1 some did not, 2 bad input.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from matrix.environments import disk, provision
from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.known import reproduction, script_runs
from matrix.known.script_runs import Answer
from matrix.run import machine, request
from matrix.versions import locking, locks, uv
from reports.render.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matrix.environments.environment import Environment
    from matrix.known.known_problems import Problem
    from matrix.known.script_runs import ScriptRecord
    from matrix.run.request import RunRequest
    from matrix.versions.sets import VersionSet

UNCLEAR = 1


def reproduce(run_request: RunRequest, chosen: Sequence[Problem], out: Path, *, say: Callable[[str], None]) -> int:
    """Run the scripts of the findings, and write the record after each run; return the exit code.

    Raises:
        UserError: a finding has no script, or the machine cannot run the request.
    """
    run_request.check()
    path = out / script_runs.FILE
    record = script_runs.read(path)
    known = script_runs.scripts()
    lacking = [each.id for each in chosen if each.id not in known]
    if lacking:
        raise UserError(f"{lacking[0]} has no script; add {script_runs.FOLDER.name}/{lacking[0]}.py")
    hardware = machine.hardware(run_request.resolved_device)
    work = reproduction.ScriptWork(
        scripts={each.id: known[each.id] for each in chosen},
        hardware=hardware,
        install=installer(run_request, say=say),
        environ=os.environ,
        workers=run_request.workers or request.default_workers(run_request.resolved_device),
        is_known=is_known(record, hardware) if run_request.resume else lambda *_: False,
        say=say,
    )
    unclear = 0
    out.mkdir(parents=True, exist_ok=True)
    for new in reproduction.measure(run_request.version_sets(), work):
        record = record.with_runs([new])
        write_whole(path, script_runs.text(record))
        say(f"{new.answer.value:10} {new.set} {new.finding}: {new.line}")
        unclear += new.answer is Answer.UNCLEAR
    say(f"Record: {path}")
    return UNCLEAR if unclear else 0


def is_known(record: ScriptRecord, hardware: str) -> Callable[[str, str, str], bool]:
    """Tell which scripts the record has, unchanged, on a set with this lock."""
    measured = {(each.finding, each.set, each.lock, each.sha256) for each in record.runs if each.hardware == hardware}
    digests = {finding: script_runs.digest(path) for finding, path in script_runs.scripts().items()}
    return lambda finding, version_set, lock: (finding, version_set, lock, digests[finding]) in measured


def installer(run_request: RunRequest, *, say: Callable[[str], None]) -> reproduction.Install:
    cache = cache_folder()
    tool = uv.on_this_machine(cache)
    backend = run_request.backend(tool)
    folder = locks.locks_folder(run_request.versions)

    def make_room() -> None:
        disk.keep_free(cache, uv=tool, budget_bytes=int(run_request.keep_free_gb * disk.GIGABYTE), say=say)

    def install(version_set: VersionSet) -> Environment | Evidence:
        lock = locking.read_or_resolve(version_set, uv=tool, folder=folder)
        if isinstance(lock, Evidence):
            return lock
        return provision.install(lock, cache=cache, uv=tool, backend=backend, make_room=make_room)

    return install
