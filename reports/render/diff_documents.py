"""Draws the comparison of two results as Markdown, JSON and JUnit XML."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any, Final

from cases.space.verdict import Verdict
from reports.answers.diff.changes import ChangeKind
from reports.render.junit import details, node
from reports.render.markdown import code
from reports.render.markdown import text as escaped
from reports.render.text.diff_text import (
    BY_CAUSE,
    by_reason,
    by_verdict,
    cell,
    heading,
    moved_heading,
    pair_lines,
    remark,
    summary,
    title,
)
from reports.results.verdict_style import look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.answers.diff.changes import CellChange, ResultDiff, SideResult
    from reports.answers.diff.numbers import NumberWarning

SCHEMA: Final = 1
TABLE: Final = "| cell | base | new | why |"
UNKNOWN: Final = (Verdict.SKIP, Verdict.LOST, Verdict.BLOCKED, None)


def as_json(diff: ResultDiff) -> str:
    """Return every compared cell; cells that are green on both sides are counted, and listed only with a warning."""
    listed = [each for each in diff.changes if each.kind is not ChangeKind.GREEN or each.warnings or each.moved_checks]
    document = {
        "schema": SCHEMA,
        "device": diff.new.device,
        "base": {"name": diff.base.name, "hardware": diff.base.hardware},
        "new": {"name": diff.new.name, "hardware": diff.new.hardware},
        "sets": [
            {
                "base": pair.base,
                "new": pair.new,
                "moves": [{"name": each.name, "old": each.old, "new": each.new} for each in pair.moves],
                "note": pair.note,
            }
            for pair in diff.pairs
        ],
        "counts": {kind.value: diff.counts[kind] for kind in ChangeKind},
        "unknown": {word(verdict): diff.unknown_verdicts[verdict] for verdict in UNKNOWN},
        "regressions": len(diff.regressions),
        "slowdown": diff.slowdown,
        "alarms": list(map(str, diff.alarms)),
        "notes": list(diff.notes),
        "cells": [change_data(each) for each in listed],
    }
    return json.dumps(document, indent=1)


def word(verdict: Verdict | None) -> str:
    return "not run" if verdict is None else verdict.value


def change_data(change: CellChange) -> dict[str, Any]:
    return {
        "cell": cell(change),
        "case": change.case,
        "kind": change.kind.value,
        "base": side_data(change.base),
        "new": side_data(change.new),
        "reason": change.reason or remark(change),
        "cause": change.cause.title if change.cause else "",
        "base_cause": change.base_cause.title if change.base_cause else "",
        "suspects": list(change.suspects),
        "proof": change.proof,
        "quarantine": change.quarantine,
        "warnings": [number_data(each) for each in change.warnings],
        "moved_checks": [number_data(each) for each in change.moved_checks],
    }


def number_data(number: NumberWarning) -> dict[str, str]:
    return {"what": number.what, "old": number.old, "new": number.new}


def side_data(side: SideResult | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return {"verdict": word(side.verdict), "runs": [each.value for each in side.runs]}


def as_markdown(diff: ResultDiff) -> str:
    return "\n".join(markdown_lines(diff)) + "\n"


def markdown_lines(diff: ResultDiff) -> Iterator[str]:
    yield from (f"# {escaped(title(diff))}", "", escaped(summary(diff)), "")
    yield from (f"* {escaped(str(line))}" for line in (*diff.alarms, *diff.notes))
    for pair in diff.pairs:
        yield from (f"* {escaped(line.strip())}" for line in pair_lines(pair, every=True, several=len(diff.pairs) > 1))
    for kind in BY_CAUSE:
        if diff.by_kind[kind]:
            yield from ("", f"## {heading(kind, diff.counts[kind])}", "", TABLE, "| --- | --- | --- | --- |")
            yield from (markdown_row(each) for group in diff.groups(kind) for each in group.changes)
    for kind in (ChangeKind.NEW, ChangeKind.GONE):
        if diff.by_kind[kind]:
            yield from ("", f"## {heading(kind, diff.counts[kind])}", "")
            for verdict, cells in by_verdict(diff.by_kind[kind]).items():
                yield f"* {look(verdict).word} ({len(cells)}): {', '.join(code(cell(each)) for each in cells)}"
    yield from number_lines(diff)
    if diff.by_kind[ChangeKind.UNKNOWN]:
        yield from ("", f"## {heading(ChangeKind.UNKNOWN, diff.counts[ChangeKind.UNKNOWN])}", "")
        for reason, cells in by_reason(diff.by_kind[ChangeKind.UNKNOWN]).items():
            yield f"* {escaped(reason)} ({len(cells)}): {', '.join(code(cell(each)) for each in cells)}"


def number_lines(diff: ResultDiff) -> Iterator[str]:
    """Yield the numbers of green cells that got worse, or that moved within their tolerance."""
    if diff.warned:
        yield from ("", f"## Warnings about numbers ({len(diff.warned)})", "")
        yield from (f"* {code(cell(each))}: {escaped('; '.join(map(str, each.warnings)))}" for each in diff.warned)
    if diff.with_moved_checks:
        yield from ("", f"## {moved_heading(diff)}", "")
        for each in diff.with_moved_checks:
            yield f"* {code(cell(each))}: {escaped('; '.join(map(str, each.moved_checks)))}"


def markdown_row(change: CellChange) -> str:
    signs = (look(side.verdict).sign if side else "" for side in (change.base, change.new))
    cause = change.cause.title if change.cause else ""
    involved = f"involves {', '.join(change.suspects)}" if change.suspects else ""
    words = "; ".join(part for part in (cause, involved, remark(change)) if part)
    return f"| {code(cell(change))} | {' | '.join(signs)} | {escaped(words)} |"


def as_junit(diff: ResultDiff) -> str:
    """Return one test case per compared cell: a failure for each regression, skipped if unknown or quarantined."""
    skipped = sum(is_skipped(each) for each in diff.changes)
    root = ET.Element("testsuites", name="ftmatrix diff")
    suite = node(
        "testsuite",
        name=title(diff),
        tests=len(diff.changes),
        failures=len(diff.regressions),
        errors=0,
        skipped=skipped,
    )
    suite.extend(junit_case(each) for each in diff.changes)
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def is_skipped(change: CellChange) -> bool:
    return change.kind is ChangeKind.UNKNOWN or (change.kind is ChangeKind.REGRESSED and not change.is_alarm)


def junit_case(change: CellChange) -> ET.Element:
    outcome = change.new.outcome if change.new else None
    element = node(
        "testcase",
        name=change.case,
        classname=change.new_set or change.base_set,
        time=outcome.seconds if outcome else 0,
    )
    cause = change.cause.title if change.cause else ""
    words = "; ".join(part for part in (cause, change.reason or remark(change)) if part)
    if change.is_alarm:
        element.append(node("failure", details(outcome), type=change.kind.value, message=words))
    elif is_skipped(change):
        element.append(node("skipped", type=change.kind.value, message=words))
    elif change.kind is not ChangeKind.GREEN:
        element.append(node("system-out", f"{change.kind}: {words}"))
    return element
