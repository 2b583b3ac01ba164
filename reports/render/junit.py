"""Draws ``junit.xml``: one test suite per version set, one test case per cell."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Verdict
from reports.results.location_words import location_words
from reports.results.verdict_style import look
from reports.results.wording import check_words, headline, missed, value_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.run.outcome import Outcome, SetRecord
    from reports.results.grid import Grid

# https://www.w3.org/TR/xml/#charsets; an error message may have any other character
FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ERRORS: Final = frozenset({Verdict.LOST, Verdict.BLOCKED})


def junit(matrix: Grid) -> str:
    root = ET.Element("testsuites", name="ftmatrix")
    seconds: defaultdict[str, float] = defaultdict(float)
    hardware: dict[str, str] = {}
    for outcome in matrix.outcomes:
        seconds[outcome.set] += outcome.seconds
        hardware[outcome.set] = outcome.hardware
    root.extend(suite(matrix, each, seconds[each.key], hardware.get(each.key, "")) for each in matrix.sets)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def suite(matrix: Grid, column: SetRecord, seconds: float, hardware: str) -> ET.Element:
    counts = matrix.counts(column.key)
    element = node(
        "testsuite",
        name=column.key,
        tests=counts.total(),
        failures=sum(counts[verdict] for verdict in RED),
        errors=sum(counts[verdict] for verdict in ERRORS),
        skipped=counts[Verdict.SKIP] + counts[None],
        time=f"{seconds:.3f}",
    )
    element.append(properties(column, hardware))
    element.extend(test_cases(matrix, column))
    return element


def properties(column: SetRecord, hardware: str) -> ET.Element:
    element = node("properties")
    device, _, model = hardware.partition(": ")
    place = {"device": device, "hardware": model} if hardware else {}
    known = {**place, "python": column.python, **column.pins}
    element.extend(node("property", name=name, value=value) for name, value in known.items())
    return element


def test_cases(matrix: Grid, column: SetRecord) -> Iterator[ET.Element]:
    for group in matrix.groups:
        for case in group.cases:
            outcome = matrix.lookup(case, column.key)
            element = node(
                "testcase",
                name=case,
                classname=f"{column.key}.{group.name}",
                time=f"{outcome.seconds if outcome else 0:.3f}",
            )
            element.extend(result(matrix.verdict(case, column.key), outcome, column))
            yield element


def result(verdict: Verdict | None, outcome: Outcome | None, column: SetRecord) -> Iterator[ET.Element]:
    """Yield the result element of a test case: none for a pass."""
    message = headline(outcome) if outcome else column.blocked or "not run"
    kind = look(verdict).word
    if verdict in RED:
        yield node("failure", details(outcome), type=kind, message=message)
    elif verdict in ERRORS:
        yield node("error", details(outcome), type=kind, message=message)
    elif verdict in {Verdict.SKIP, None}:
        yield node("skipped", type=kind, message=message)


def details(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    error = outcome.error
    parts = [
        f"phase: {outcome.phase.value}" if outcome.phase else "",
        f"{error.type}: {error.message}" if error else "",
        *(f"check: {check_words(check)}" for check in missed(outcome)),
        location_words(outcome.location),
        *(f"{name}: {value_words(path)}" for name, path in outcome.evidence.items()),
        error.traceback if error else "",
    ]
    return "\n".join(part for part in parts if part)


def node(tag: str, text: str = "", **attributes: object) -> ET.Element:
    element = ET.Element(tag, {name: legal(str(value)) for name, value in attributes.items()})
    element.text = legal(text) or None
    return element


def legal(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
