"""Writes and reads the text of issues: a marker with the fingerprint, and a list of red cells that is kept up to date.

The list carries its own data in a comment, so that GitHub itself remembers which cells an issue names. People may edit
everything around the list.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from matrix.keys import CellKey
from reports.alerts.alert import cell_lines, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matrix.versions.moved_packages import MovedPackage
    from reports.alerts.alert import Alert
    from reports.alerts.causes import CauseUpdate

# GitHub refuses a body of more than 65,536 characters; these parts stay below it together.
LONGEST_TITLE: Final = 240
LONGEST_TEXT: Final = 18_000
LONGEST_LIST: Final = 9_000
LONGEST_STATE: Final = 34_000
MARKER: Final = re.compile(r"<!-- ftmatrix-alert: ([0-9a-f]{16}) -->")
COMMENT_MARKER: Final = re.compile(r"<!-- ftmatrix-comment: ([0-9a-f]{16}) -->")
BEGIN, END = "<!-- ftmatrix-cells: begin -->", "<!-- ftmatrix-cells: end -->"
REGION: Final = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
STATE: Final = re.compile(r"<!-- ftmatrix-state: ([A-Za-z0-9+/=]+) -->")
LARGEST_STATE: Final = 4 * 1024 * 1024  # bytes of its JSON: somebody may have edited it
CODE: Final = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
FENCE: Final = re.compile(r"^ {0,3}```", re.MULTILINE)
GONE_AFTER: Final = timedelta(days=14)  # without a run, a cell counts as gone
NOTE: Final = (
    "ftmatrix keeps the list of cells up to date, closes this issue when each of them was green, and reopens it when "
    "the cause comes back. A cell that was not run, or is red for another reason, stays in the list; one that has not "
    f"run for {GONE_AFTER.days} days leaves it. ftmatrix does not reopen an issue that somebody closed as not planned."
)
INVISIBLE: Final = "\N{ZERO WIDTH SPACE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueState:
    """What an issue says: its red cells with their device, and the last night that changed it.

    ``more`` counts the cells for which there was no room. Later nights cannot tell them from new ones. ``absent`` has
    the first night on which a cell did not run, for cells that have not run since.
    """

    night: date
    device: str
    cells: frozenset[CellKey]
    more: int = 0
    absent: Mapping[CellKey, date] = field(default_factory=dict)


def fingerprint_in(body: str) -> str:
    """Return the fingerprint in the body of an issue; empty if there is none."""
    match = MARKER.search(body)
    return match[1] if match else ""


def state_in(body: str) -> IssueState | None:
    """Read the list of cells; None if the body has none, or somebody damaged it."""
    matches = STATE.findall(body)
    if not matches:
        return None
    try:
        packed = zlib.decompressobj()
        data = json.loads(packed.decompress(base64.b64decode(matches[-1], validate=True), LARGEST_STATE))
        cells = frozenset(CellKey.parse(each) for each in data["cells"])
        night, device = date.fromisoformat(data["night"]), str(data["device"])
        absent = {CellKey.parse(each): date.fromisoformat(day) for each, day in data.get("absent", {}).items()}
        return IssueState(night=night, device=device, cells=cells, more=int(data["more"]), absent=absent)
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
        return None


def packed_state(state: IssueState) -> str:
    """Write a state as text, with as many cells as there is room for."""
    cells, more = sorted(map(str, state.cells)), state.more
    while True:
        kept = frozenset(cells)
        absent = {str(cell): f"{day}" for cell, day in sorted(state.absent.items()) if str(cell) in kept}
        values = {"night": f"{state.night}", "device": state.device, "cells": cells, "more": more}
        data = json.dumps({**values, **({"absent": absent} if absent else {})})
        text = base64.b64encode(zlib.compress(data.encode(), 9)).decode()
        if len(text) <= LONGEST_STATE:
            return text
        left = len(cells) * 9 // 10
        more, cells = more + len(cells) - left, cells[:left]


def title(alert: Alert) -> str:
    return shortened(alert.line, LONGEST_TITLE)


def new_body(update: CauseUpdate) -> str:
    """Write the body of a new issue."""
    alert = update.main
    state = IssueState(night=update.night, device=alert.device, cells=update.red)
    parts = (
        f"<!-- ftmatrix-alert: {update.fingerprint} -->",
        facts(alert),
        closed_fence(shortened(inert(alert.body), LONGEST_TEXT)),
        region(state),
        NOTE,
    )
    return "\n\n".join(part for part in parts if part)


def facts(alert: Alert) -> str:
    rows = (
        ("Cause", shortened(inert(" ".join(alert.cause.split())), 1_000)),
        ("Device", inert(alert.device)),
        ("Phase", inert(alert.phase)),
        ("Moved packages", ", ".join(f"`{str(each).replace('`', '')}`" for each in alert.moved)),
        ("First seen", alert.first_seen.isoformat()),
    )
    return "\n".join(f"* {name}: {shortened(text, 2_000)}" for name, text in rows if text)


def changed_body(body: str, state: IssueState) -> str:
    """Replace the list of cells in a body, and leave what people wrote as it is."""
    new = region(state)
    if REGION.search(body):
        return REGION.sub(lambda _: new, body, count=1)
    return f"{body}\n\n{new}"


def region(state: IssueState) -> str:
    number = len(state.cells) + state.more
    names = "cell was red when it" if number == 1 else "cells were red when they"
    heading = f"As of {state.night}, {number or 'no'} {names} last ran{':' if number else '.'}"
    lines = cell_lines(state.cells, limit=LONGEST_LIST)
    if state.absent:
        verb = "has" if len(state.absent) == 1 else "have"
        lines += ["", f"{len(state.absent)} of them {verb} not run since the night of {min(state.absent.values())}."]
    return "\n".join((BEGIN, heading, "", *lines, "", f"<!-- ftmatrix-state: {packed_state(state)} -->", END))


def comment_digest(*parts: object) -> str:
    """Identify a comment, so that it is not written twice."""
    return hashlib.sha256(json.dumps([str(each) for each in parts]).encode()).hexdigest()[:16]


def comment(
    sentence: str,
    *,
    fingerprint: str,
    moved: Iterable[MovedPackage] = (),
    new: Iterable[CellKey],
    green: Iterable[CellKey],
    gone: Iterable[CellKey] = (),
    night: date,
) -> tuple[str, str]:
    """Return a comment and the digest in its marker."""
    new, green, gone, moves = sorted(new), sorted(green), sorted(gone), ", ".join(map(str, moved))
    digest = comment_digest(fingerprint, night, sentence, new, green)
    parts = (
        f"<!-- ftmatrix-comment: {digest} -->",
        f"{sentence} (night of {night})",
        "\n".join(("Red:", "", *cell_lines(new, limit=LONGEST_LIST))) if new else "",
        "\n".join(("Green:", "", *cell_lines(green, limit=LONGEST_LIST))) if green else "",
        "\n".join(("Not run any more:", "", *cell_lines(gone, limit=LONGEST_LIST))) if gone else "",
        f"Moved packages: {shortened(moves, 2_000)}" if moves else "",
    )
    return "\n\n".join(part for part in parts if part), digest


def inert(text: str) -> str:
    """Return Markdown that notifies nobody, links back to no thread, and has no comment of ours.

    A decorator of a traceback would mention a user of its name, and every link to an upstream thread would appear
    there. https://redirect.github.com leads to the same page without a trace.
    """
    parts = CODE.split(text.replace("<!-- ftmatrix", "<!- ftmatrix"))
    return "".join(part if number % 2 else inert_words(part) for number, part in enumerate(parts))


def inert_words(text: str) -> str:
    text = text.replace("<!--", "&lt;!--")
    text = re.sub(r"@(?=\w)", f"@{INVISIBLE}", text)
    text = re.sub(r"(?i)(?:\bGH-|#)(?=\d)", lambda match: f"{match[0]}{INVISIBLE}", text)
    return re.sub(r"(?i)https?://(?:www\.)?github\.com/", "https://redirect.github.com/", text)


def closed_fence(text: str) -> str:
    """Close a code block that a shortened text left open."""
    return f"{text}\n```" if len(FENCE.findall(text)) % 2 else text
