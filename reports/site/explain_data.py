"""The signatures and the expressions of the diagnosis, as the browser needs them to answer as ``ftmatrix explain``.

The Python modules stay the only source: this module translates their expressions, and ``static/diagnosis.js`` applies
them in the same order. The tests give both the same logs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from reports.answers.diagnosis import blame, frames, logs, observed_options, outside, ranks, symptoms, tracebacks
from reports.answers.diagnosis.explain import PublishedEvidence, load_evidence
from reports.answers.diagnosis.signatures import load, unquoted
from reports.answers.fixes import proven
from reports.results import known_results
from reports.results.known_results import AdviceResult
from reports.site.javascript_patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import ModuleType

    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.fixes.proven import ProvenFix
    from reports.site.published_data import PublishedData

EXPRESSIONS: Final[Mapping[ModuleType, tuple[str, ...]]] = {
    tracebacks: (
        *("FRAME", "CHAIN", "EXCEPTION", "LAST_LINE_OF_TRACEBACK", "LOST_PEER", "WATCHDOG_RECORD", "LOG_RECORD"),
        *("RETRY", "TRAINING_STEP", "COLLECTIVE", "LAUNCHER_FRAME", "LAUNCHER_EXCEPTION", "RESOLVED"),
    ),
    frames: ("CHECKOUT", "INSTALLED", "SHARDING", "STANDARD_LIBRARY", "REMOTE_MODEL", "FRAME"),
    blame: ("IMPORT", "SHADOW", "PARTS", "DETACHED"),
    symptoms: ("COLOURS", "PREFIXES"),
    ranks: ("RANK",),
    logs: ("MENTION", "INCOMPATIBILITY", "NOT_INSTALLED_LINE"),
}
LEADING_FLAGS: Final = re.compile(r"^\(\?[im]+\)")  # which `flags` of the compiled expression has, too
MOST_FIXES: Final = 12  # of a signature
MOST_CELLS: Final = 3


def errors_data(published: PublishedData) -> dict[str, Any]:
    """Return the signatures, the ends outside the stack, and the expressions to read a log."""
    evidence = load_evidence(load(), published.folder, published.answers)
    red = red_by_signature(published)
    return {
        "signatures": [signature_data(row, evidence, red.get(row.id, {})) for row in load()],
        "outside": [
            {"id": row.id, "pattern": expression(row.regex), "says": row.says, "anywhere": row.anywhere}
            for row in outside.load()
        ],
        "expressions": {
            module.__name__.rpartition(".")[2]: {name: expression(getattr(module, name)) for name in names}
            for module, names in EXPRESSIONS.items()
        },
        "statements": [expression(each) for each in logs.STATEMENT],
        "signs": [[name, sorted(map(str, values)), expression(sign)] for name, values, sign in observed_options.SIGNS],
        "loadedWithout": expression(observed_options.LOADED_WITHOUT),
        "neutral": sorted(frames.NEUTRAL),
        "stack": list(frames.STACK),
        "overridden": sorted(frames.OVERRIDDEN),
        "quotes": "".join(map(chr, symptoms.WITHOUT_QUOTES)),
        "limits": {
            "message": tracebacks.MESSAGE_LINES,
            "context": tracebacks.CONTEXT_LINES,
            "gap": ranks.GAP,
            "alone": blame.ALONE,
        },
    }


def expression(compiled: re.Pattern[str]) -> list[str]:
    """Return a compiled expression as its source and flags for JavaScript."""
    flags = ("i" if compiled.flags & re.IGNORECASE else "") + ("m" if compiled.flags & re.MULTILINE else "")
    return [pattern(LEADING_FLAGS.sub("", compiled.pattern)), flags]


def red_by_signature(published: PublishedData) -> Mapping[str, Mapping[str, Sequence[Outcome]]]:
    """Return the red cells that each signature explains best, by device."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    for device, causes in published.causes.items():
        for cause in causes:
            if cause.signature is not None:
                found.setdefault(cause.signature.id, {}).setdefault(device, []).extend(cause.cells)
    return found


def signature_data(row: Signature, evidence: PublishedEvidence, red: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    """Return a signature with its fixes. Fields that are empty are left out."""
    every = {device: with_problem_cells(row, evidence, device, red.get(device, ())) for device in evidence.grids}
    threads = (*row.links, *(link for problem in evidence.problems_of(row) for link in problem.references))
    values = {
        "id": row.id,
        **{
            name: pattern(unquoted(getattr(row, name)))
            for name in ("pattern", "near", "through", "elsewhere")
            if getattr(row, name)
        },
        "nearWords": row.near,
        "phases": [phase.value for phase in row.phases],
        "when": row.when.split(),
        "device": row.device,
        "versions": {name: str(specifier) for name, specifier in row.specifiers.items()},
        "cause": row.cause,
        "kind": row.kind.words,
        "fix": row.fix,
        "links": list(dict.fromkeys(map(known_results.address, threads))),
        "fixes": [fix_data(fix, evidence) for fix in ordered(row, evidence, every)[:MOST_FIXES]],
        "claims": [
            {"says": each.says, "holding": each.holding.value}
            for each in evidence.claims(row)
            if each.holding is not AdviceResult.HOLDS
        ],
        "unquantised": any(not observed_options.is_quantised(each) for cells in every.values() for each in cells),
    }
    return {name: value for name, value in values.items() if value not in ("", [], {})}


def with_problem_cells(
    row: Signature, evidence: PublishedEvidence, device: str, red: Sequence[Outcome]
) -> tuple[Outcome, ...]:
    """Return the cells that a signature explains, and the red ones of its known problems that show the same line."""
    cases = {cells.case for each in evidence.problems_of(row) for cells in each.red}
    matrix = evidence.grids[device]
    known = {(each.case, each.set) for each in red}
    more = (each for each in matrix.red if each.case in cases and (each.case, each.set) not in known)
    return (*red, *(each for each in more if any(anchor in each.reason for anchor in row.anchors if anchor)))


def ordered(row: Signature, evidence: PublishedEvidence, red: Mapping[str, Sequence[Outcome]]) -> tuple[ProvenFix, ...]:
    """Return the fixes of a signature; the browser leaves out those that contradict a log."""
    return proven.ordered(evidence.fixes(row, red), {}, evidence.pins)


def fix_data(fix: ProvenFix, evidence: PublishedEvidence) -> dict[str, Any]:
    """Return a fix, with the options of the red cell that it repairs."""
    red = evidence.cell(fix.red, fix.device)
    observed = (
        {}
        if red is None or "call" in red.options
        else {name: str(red.options.get(name, observed_options.default(name))) for name in observed_options.NAMES}
    )
    return {
        "says": fix.change or fix.because,
        "typed": list(fix.typed),
        "device": fix.device,
        "kind": fix.kind.value,
        "red": fix.red,
        "green": list(fix.green[:MOST_CELLS]),
        "measured": fix.measured,
        "options": observed,
    }


def all_patterns() -> Iterable[str]:
    """Return every expression that the browser compiles, for the tests."""
    for row in load():
        yield from (unquoted(getattr(row, name)) for name in ("pattern", "near", "through", "elsewhere"))
    yield from (LEADING_FLAGS.sub("", row.pattern) for row in outside.load())
