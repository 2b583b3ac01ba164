"""Draws ``index.html``: the matrix as one self-contained page that needs no network."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic_core import to_json

from cases.space.plural import counted
from matrix.keys import CellKey
from reports.answers.devices.compare import CPU
from reports.answers.diagnosis.diagnose import UNEXPLAINED
from reports.answers.known_problems import ran
from reports.render.text import devices_text
from reports.render.text.devices_text import distance, shown
from reports.render.text.recommend_text import how, none_of
from reports.render.text.support_text import short
from reports.results.comparison import DifferenceKind
from reports.results.known_results import address
from reports.results.location_words import location_details
from reports.results.verdict_style import LOOKS, UNKNOWN, look
from reports.results.wording import again, device, headline, machine, rates, torch_builds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.overview import Overview
    from reports.results.comparison import Comparison
    from reports.results.grid import Grid

TEMPLATES: Final = Path(__file__).parent / "templates"
VERDICTS: Final = (*LOOKS, None)
FEW_SETS: Final = 6
FEW_CAUSES: Final = 6  # more are collapsed, to keep the page short


def page(record: RunRecord, matrix: Grid, known: Overview, *, generated: datetime, evidence: str = "") -> str:
    """Return the page. ``evidence`` is the relative path from the page to the folder of the log files."""
    css, script = source("page.css"), source("page.js")
    builds = torch_builds(matrix.outcomes)
    return (
        environment()
        .get_template("index.html.j2")
        .render(
            record=record,
            grid=matrix,
            known=known,
            generated=generated,
            device=device(record),
            verdicts=[(look(verdict), matrix.counts()[verdict]) for verdict in VERDICTS],
            few=len(matrix.sets) <= FEW_SETS,
            few_causes=FEW_CAUSES,
            machine=machine(record),
            builds=builds,
            packages=list(dict.fromkeys(name for column in matrix.sets for name in column.pins)),
            brings=list(dict.fromkeys(name for each in builds.values() for name in each)),
            css=Markup(css),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            policy=policy(css, script),
            data=embedded(details(matrix, known, evidence, record.device)),
        )
    )


def source(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals.update(
        look=look,
        versions=versions,
        reason=reason,
        rates=rates,
        address=address,
        how=how,
        none_of=none_of,
        short=short,
        ran=ran,
    )
    made.globals.update(kinds=tuple(DifferenceKind), differing=devices_text, linked=linked, counted=counted)
    made.filters.update(breakable=breakable, heading=heading)
    return made


def policy(css: str, script: str) -> str:
    """Return a content security policy: only the style and script of the page run, and nothing is fetched."""
    return (
        f"default-src 'none'; img-src data:; style-src '{digest(css)}'; script-src '{digest(script)}'; base-uri 'none'"
    )


def digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: Any) -> Markup:
    """Return strict JSON for a script element: no ``<`` that could end it, no NaN and no infinity."""
    text = to_json(data, inf_nan_mode="strings").decode()
    # U+2028 and U+2029 end a line in older scripts
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # noqa: S704 - escaped above


def breakable(text: str) -> Markup:
    """Let a name wrap after its separators, so that narrow columns stay narrow."""
    return Markup("<wbr>").join(re.split(r"(?<=[-_+.=])", text))


def heading(key: str) -> Markup:
    """Let the key of a set wrap around the name of a changed package, never inside a date or a version."""
    return Markup("<wbr>").join(re.split(r"(?<=\+)|(?<=[a-z])(?=\d)", key))


def linked(matrix: Grid, case: str, version_set: str) -> Markup:
    """Return the key of a set, as a link to its cell if the page has it."""
    if matrix.belongs(case, version_set):
        return Markup('<a href="#{}">{}</a>').format(quote(str(CellKey(version_set, case))), version_set)
    return Markup("{}").format(version_set)


def versions(column: SetRecord) -> str:
    """Return the versions of a set in one line."""
    return ", ".join([f"Python {column.python}", *(f"{name} {version}" for name, version in column.pins.items())])


def reason(matrix: Grid, case: str, column: SetRecord) -> str:
    """Return the reason of a cell's verdict in one line, for tooltips and for the text filter."""
    outcome = matrix.lookup(case, column.key)
    return headline(outcome) if outcome else column.blocked or UNKNOWN.meaning


def details(matrix: Grid, known: Overview, evidence: str, device: str) -> dict[str, Any]:
    """Return the data of the dialogs. The data of a case, a set or a cause appears once."""
    looks = [*LOOKS.values(), UNKNOWN]
    elsewhere = other_device(known.devices, device)
    signed = [cause.signature for cause in known.causes if cause.signature is not None]
    return {
        "looks": {one.css: {"sign": one.sign, "word": one.word, "meaning": one.meaning} for one in looks},
        "sets": {column.key: column.model_dump(mode="json", exclude={"key"}) for column in matrix.sets},
        "cases": {o.case: {"group": o.group, "why": o.why, "options": o.options} for o in matrix.outcomes},
        "causes": {one.id: because(one) for one in signed},
        "cells": {
            str(CellKey(column.key, case)): cell(matrix, case, column, evidence)
            | answers(known, str(CellKey(column.key, case)))
            | differs(elsewhere.get(str(CellKey(column.key, case)), []))
            for case in matrix.cases
            for column in matrix.sets
            if matrix.belongs(case, column.key)
        },
    }


def cell(matrix: Grid, case: str, column: SetRecord, evidence: str) -> dict[str, Any]:
    outcome = matrix.lookup(case, column.key)
    known = {} if outcome is None else measured(outcome, evidence)
    return {
        "set": column.key,
        "case": case,
        "verdict": look(matrix.verdict(case, column.key)).css,
        "again": again(column.key, case, backend=column.torch_backend),
        **known,
    }


def because(signature: Signature) -> dict[str, Any]:
    return {
        "cause": signature.cause,
        "kind": signature.kind.words,
        "advice": signature.fix,
        "links": [{"name": link, "href": address(link)} for link in signature.links],
    }


def answers(known: Overview, key: str) -> dict[str, Any]:
    """Return the cause and the fix of a red cell; nothing for other cells."""
    cause, remedy = known.by_cell.get(key), known.fixes.get(key)
    if cause is None:
        return {}
    fix = {"words": remedy.words, "proof": remedy.proof, "edit": known.edits.get(key, "")} if remedy else {}
    answer = {"fix": fix} if fix else {}
    return {"cause": cause.signature.id if cause.signature else UNEXPLAINED, **answer}


def other_device(comparison: Comparison, device: str) -> Mapping[str, list[str]]:
    """Return the differing results of the other kind of device, by cell of this one."""
    lines: dict[str, list[str]] = {}
    for each in comparison.differences:
        for on in each.sets:
            if device == CPU:
                words = f"On GPUs, on {on.gpu} ({distance(each)}): {shown(each.gpu)}"
            else:
                words = f"On the CPU, on {on.cpu} ({distance(each)}): {shown(each.cpu)}"
            lines.setdefault(str(CellKey(on.cpu if device == CPU else on.gpu, each.case)), []).append(words)
    return lines


def differs(lines: list[str]) -> dict[str, list[str]]:
    return {"differs": lines} if lines else {}


def measured(outcome: Outcome, evidence: str) -> dict[str, Any]:
    """Return the values of an outcome that are not empty."""
    stored_fields = {
        "reason",
        "phase",
        "error",
        "checks",
        "metrics",
        "facts",
        "attempt",
        "started",
        "seconds",
        "hardware",
    }
    stored = outcome.model_dump(mode="json", include=stored_fields)
    stored |= location_details(outcome.location)
    links = [{"name": name, "href": href(evidence, path)} for name, path in outcome.evidence.items()]
    return {name: value for name, value in {**stored, "evidence": links}.items() if value not in (None, "", [], {})}


def href(evidence: str, path: str) -> str:
    """Return a relative link, quoted so that a file name cannot become a scheme or another host."""
    return quote(f"{evidence}/{path}".lstrip("/") if evidence else f"./{path}")
