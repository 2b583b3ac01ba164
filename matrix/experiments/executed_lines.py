"""Measures once which lines of the stack each cell executes, and keeps that for every later mutation run.

The measurement is an ordinary run with ``cases.injection.line_suite``, in a directory of the cache that each call
resumes: only cells that are new, whose case code or lock changed, or whose lines could not be measured, run again.
``lines.jsonl`` there has one line for each measured cell.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cases.injection.executed_lines import parsed_spans, spans
from cases.injection.line_suite import LINES
from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.environments.environment import cache_folder
from matrix.run import request as run_request
from matrix.run import store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.outcome import Outcome
    from matrix.run.progress import Progress
    from matrix.run.request import RunRequest
    from matrix.versions.sets import VersionSet

FILE: Final = "lines.jsonl"
RAW: Final = "raw"
ENDED: Final = frozenset({Verdict.PASS, Verdict.WRONG})  # a traced cell with another verdict did not come to its end


@dataclass(frozen=True, kw_only=True)
class TracedCell:
    """A green cell with the lines that its ranks executed, by file below ``root``."""

    case: str
    seconds: float
    root: str
    files: Mapping[str, frozenset[int]]


def measure(
    version_set: VersionSet,
    cases: Sequence[Case],
    request: RunRequest,
    *,
    watcher: Callable[[int], Progress],
    say: Callable[[str], None],
) -> list[TracedCell]:
    """The green cells among these cases, the fastest first.

    Raises:
        UserError: the set cannot run on this machine.
    """
    directory = cache_folder() / "lines" / request.resolved_device
    raw = directory / RAW / version_set.key
    forget_unmeasured(directory, version_set.key)
    traced = replace(
        request,
        out=directory,
        resume=(directory / store.RUN).exists(),
        repeats=1,
        cold_sample=0,
        suite=replace(request.suite, module="cases.injection.line_suite"),
        variables={LINES: str(raw.absolute())},
    )
    try:
        run_request.run(traced, work=[(version_set, cases)], watcher=watcher(len(cases)), say=say)
    finally:
        harvest(raw, directory / FILE, version_set.key)
    _, _, outcomes = store.read(directory)
    latest = {each.case: each for each in outcomes if each.set == version_set.key}
    lines = stored_lines(directory / FILE, version_set.key)
    green = [latest[case.id] for case in cases if case.id in latest and latest[case.id].verdict is Verdict.PASS]
    missing = Counter(latest[case.id].verdict for case in cases if case.id in latest and lacks(latest[case.id], lines))
    if missing:
        verdicts = ", ".join(f"{count} {verdict.value}" for verdict, count in missing.items())
        say(
            f"{version_set.key}: the lines of {counted(missing.total(), 'cell')} could not be measured ({verdicts}), "
            "so no mutant runs there; the next run measures them again"
        )
    found = [
        TracedCell(case=each.case, seconds=each.seconds, **lines[each.case]) for each in green if each.case in lines
    ]
    return sorted(found, key=lambda each: each.seconds)


def lacks(outcome: Outcome, lines: Mapping[str, object]) -> bool:
    """Return whether a cell that can run has no lines, or did not come to its end when it was traced last.

    A wrong cell came to its end: no mutant runs there, and measuring it again would not change that.
    """
    if outcome.verdict is Verdict.SKIP:
        return False
    return outcome.verdict not in ENDED or outcome.case not in lines


def forget_unmeasured(directory: Path, key: str) -> None:
    """Remove what an interrupted run of a set recorded, and its outcomes without lines: the next run measures again.

    Raises:
        UserError: another process measures there.
    """
    lock = store.lock_directory(directory)
    try:
        shutil.rmtree(directory / RAW / key, ignore_errors=True)
        if not (directory / store.RUN).exists():
            return
        _, _, outcomes = store.read(directory)
        lines = stored_lines(directory / FILE, key)
        kept = [each for each in outcomes if each.set != key or not lacks(each, lines)]
        if len(kept) < len(outcomes):
            whole = directory / f"{store.OUTCOMES}.whole"
            whole.write_text("".join(f"{each.model_dump_json(by_alias=True)}\n" for each in kept), encoding="utf-8")
            whole.replace(directory / store.OUTCOMES)
    finally:
        lock.close()


def harvest(raw: Path, path: Path, key: str) -> None:
    """Append what ranks recorded to the file of all lines, one line for each cell, and remove the records."""
    if not raw.exists():
        return
    with path.open("a", encoding="utf-8") as sink:
        for cell in sorted(raw.iterdir()):
            sink.write(json.dumps({"set": key, "case": cell.name, **merged(cell)}) + "\n")
    shutil.rmtree(raw)


def merged(cell: Path) -> dict[str, Any]:
    """The executed lines of all ranks of a cell."""
    root = ""
    files: dict[str, set[int]] = {}
    for path in sorted(cell.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        root = found["root"] or root
        for name, text in found["files"].items():
            files.setdefault(name, set()).update(parsed_spans(text))
    return {"root": root, "files": {name: spans(lines) for name, lines in files.items()}}


def stored_lines(path: Path, key: str) -> dict[str, dict[str, Any]]:
    """The last record of each case of a set: its root and its lines by file. A torn line is ignored."""
    found: dict[str, dict[str, Any]] = {}
    if not path.exists():
        return found
    *whole, _torn = path.read_text(encoding="utf-8").split("\n")
    for record in map(json.loads, whole):
        if record["set"] == key:
            files = {name: frozenset(parsed_spans(text)) for name, text in record["files"].items()}
            found[record["case"]] = {"root": record["root"], "files": files}
    return found
