"""Runs a reproducer in a fresh environment, and compares its failure with that of its cell."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from matrix.errors import UserError
from matrix.run.evidence_files import scrubbed
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome
    from matrix.versions.uv import Uv
    from reports.answers.scripts.repro_script import Reproducer
    from reports.answers.scripts.symptom import ShownSymptom

LIMIT_S: Final = 3600.0  # long enough to download torch
# Text that differs between runs: addresses, paths of environments, ranks.
VARYING: Final = (
    (re.compile(r"0x[0-9a-f]{6,}"), "0x…"),
    (re.compile(r"(?:<environment>|/[^\s'\"()]*?)(?=/lib(?:64)?/python3\.\d+/site-packages)"), "<environment>"),
    (re.compile(r"/[^\s'\"()]*?(?=/lib(?:64)?/python3\.\d+/)"), "<python>"),
    (re.compile(r"\brank:? ?\d+"), "rank N"),
    (re.compile(r"\x1b\[\d+m"), ""),
)
SET: Final = re.compile(r"\{([^{}:\n]+)\}")  # Python prints sets in any order
RAISED: Final = re.compile(r"^(?:[\w.]+\.)?(?P<type>[A-Z]\w*)(?:: (?P<message>.*))?$")
ERROR: Final = re.compile(r"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b")
NO_ERROR: Final = "no error"
MEASURED: Final = re.compile(r"(?P<name>.+?) \S+, bound (?P<bound>(?:<=|>=|==) [^\s,;]+)")


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The result of a comparison of the error of a script with that of its cell."""

    same: bool
    script_error: str
    cell_error: str
    log: str
    seconds: float = 0.0


def confirmed(reproducer: Reproducer, outcome: Outcome, *, uv: Uv) -> Confirmation:
    """Run the script with ``uv run`` in a new environment, which is removed afterwards.

    Raises:
        UserError: the machine cannot run it: no network, no disk space, no such Python.
    """
    own = uuid4().hex[:12]  # uv names an environment after its script; a new name gets a new environment
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"repro-{own}.py"
        path.write_text(reproducer.text, encoding="utf-8")
        began = time.monotonic()
        try:
            result = uv("run", *uv.index_arguments, path, timeout_s=LIMIT_S, extra={"PYTHONPATH": ""})
        finally:
            for environment in uv.cache.glob(f"environments-*/*{own}*"):
                shutil.rmtree(environment, ignore_errors=True)
    log = normal(scrubbed(result.log, {str(path): reproducer.name}))
    confirmation = replace(compared(log, outcome, reproducer.symptom), seconds=time.monotonic() - began)
    if not confirmation.same and result.exit_code != 0 and "Traceback" not in result.log:
        blame_machine(result, doing=f"running the reproducer of {outcome.cell}")
        raise UserError(f"the reproducer of {outcome.cell} could not be run: {reason(result.log)}")
    return confirmation


def compared(log: str, outcome: Outcome, shown: ShownSymptom) -> Confirmation:
    """Compare an error by type and whole message, a failed check by its name and bound."""
    if outcome.error is not None:
        expected = f"{outcome.error.type}: {outcome.error.message}".rstrip(": \n")
        same = raised(log, outcome.error.type, outcome.error.message)
    else:
        expected = shown.words
        same = measured(log, expected)
    script_error = normal(expected) if same and outcome.error is not None else last_error(log)
    return Confirmation(same=same, script_error=script_error, cell_error=normal(expected), log=log)


def raised(log: str, kind: str, message: str) -> bool:
    lines = normal(log).splitlines()
    wanted = normal(message).rstrip().splitlines() or [""]
    for number, line in enumerate(lines):
        match = RAISED.match(line)
        if match and match["type"] == kind and (match["message"] or "").rstrip() == wanted[0].rstrip():
            rest = [each.rstrip() for each in lines[number + 1 : number + len(wanted)]]
            if rest == [each.rstrip() for each in wanted[1:]]:
                return True
    return False


def measured(log: str, wanted: str) -> bool:
    """Tell whether the log has a failed check of this name and bound; the measured value may differ."""
    expected = MEASURED.match(wanted)
    matches = (MEASURED.match(line.removeprefix("AssertionError: ")) for line in log.splitlines())
    return any(each and expected and each.group("name", "bound") == expected.group("name", "bound") for each in matches)


def last_error(log: str) -> str:
    """Return the last line that names an error, except for the launcher's own error."""
    named = [line for line in normal(log).splitlines() if ERROR.match(line) and "ProcessRaisedException" not in line]
    return named[-1] if named else NO_ERROR


def normal(text: str) -> str:
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return SET.sub(lambda match: f"{{{', '.join(sorted(match[1].split(', ')))}}}", text)
