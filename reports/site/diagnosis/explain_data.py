"""The signatures and the expressions of the diagnosis, as the browser needs them to answer as ``ftmatrix explain``.

The Python modules stay the only source of all expressions, lists and limits: this module translates them. The steps
that apply them are in ``static/diagnosis/``, a script for each Python module. The tests give both the same logs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from reports.answers.diagnosis import (
    blame,
    diagnose,
    frames,
    logs,
    observed_options,
    outside,
    ranks,
    symptoms,
    tracebacks,
)
from reports.answers.diagnosis.signatures import load, unquoted
from reports.site.diagnosis.javascript_patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

    from reports.answers.diagnosis.signatures import Signature

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
    observed_options: ("LOADED_WITHOUT",),
    diagnose: (),
    outside: (),
}
LIMITS: Final = (
    *("BLOCK_SIZE", "ALL_LINES_SIZE", "ERROR_LINES_SIZE", "ERROR_LINES_PER_BLOCK", "END_SIZE", "LONGEST_LINE"),
    *("LINES_BEFORE", "LINES_AFTER", "REMEMBERED_LINES"),
)
VALUES: Final[Mapping[ModuleType, Mapping[str, object]]] = {
    tracebacks: {"MESSAGE_LINES": tracebacks.MESSAGE_LINES, "CONTEXT_LINES": tracebacks.CONTEXT_LINES},
    frames: {
        "NEUTRAL": sorted(frames.NEUTRAL),
        "STACK": list(frames.STACK),
        "OVERRIDDEN": sorted(frames.OVERRIDDEN),
    },
    blame: {"ALONE": blame.ALONE},
    symptoms: {"WITHOUT_QUOTES": "".join(map(chr, symptoms.WITHOUT_QUOTES))},
    ranks: {"GAP": ranks.GAP},
    logs: {
        **{name: getattr(logs, name) for name in LIMITS},
        "ELLIPSIS": logs.ELLIPSIS.decode(),
        "ERROR_WORDS": [each.decode() for each in logs.ERROR_WORDS],
    },
    observed_options: {"NAMES": list(observed_options.NAMES)},
    diagnose: {"MATCHES": diagnose.MATCHES},
}
LEADING_FLAGS: Final = re.compile(r"^\(\?[im]+\)")  # which `flags` of the compiled expression has, too


def errors_data() -> dict[str, Any]:
    """Return the signatures, the ends outside the stack, and the expressions and values to read a log."""
    return {
        "signatures": [signature_data(row) for row in load()],
        "outside": [
            {"id": row.id, "pattern": expression(row.regex), "says": row.says, "anywhere": row.anywhere}
            for row in outside.load()
        ],
        "expressions": {
            name_of(module): {name: expression(getattr(module, name)) for name in names}
            for module, names in EXPRESSIONS.items()
        },
        "values": {name_of(module): values for module, values in VALUES.items()},
        "statements": [expression(each) for each in logs.STATEMENT],
        "signs": [[name, sorted(map(str, values)), expression(sign)] for name, values, sign in observed_options.SIGNS],
    }


def name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def expression(compiled: re.Pattern[str]) -> list[str]:
    """Return a compiled expression as its source and flags for JavaScript."""
    flags = ("i" if compiled.flags & re.IGNORECASE else "") + ("m" if compiled.flags & re.MULTILINE else "")
    return [pattern(LEADING_FLAGS.sub("", compiled.pattern)), flags]


def signature_data(row: Signature) -> dict[str, Any]:
    """Return the part of a signature that recognises it. Fields that are empty are left out."""
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
        "kind": row.kind.value,
        "kindWords": row.kind.words,
        "fix": row.fix,
        "problems": list(row.problems),
    }
    return {name: value for name, value in values.items() if value not in ("", [], {})}


def all_patterns() -> Iterable[str]:
    """Return every expression that the browser compiles, for the tests."""
    for row in load():
        yield from (unquoted(getattr(row, name)) for name in ("pattern", "near", "through", "elsewhere"))
    yield from (LEADING_FLAGS.sub("", row.pattern) for row in outside.load())
