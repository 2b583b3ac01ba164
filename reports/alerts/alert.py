"""Defines an alert: one cause that a night found, with its cells, as it is sent to people."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from matrix.keys import CellKey
    from matrix.versions.moved_packages import MovedPackage

FINGERPRINT_LENGTH: Final = 16  # hexadecimal digits: 64 bits
# What differs between two runs of the same failure: addresses, folders, and every number (ranks, shapes, versions).
VARIABLE: Final = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"(?<![\w/.])(?:~|\.{1,2})?(?:/[\w.@+~-]+)+/"), ""),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "#"),
    (re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
)
# Line feeds and tabs stay. The others could change a terminal, hide text, or are not allowed in XML.
UNPRINTABLE: Final = re.compile(
    "[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069\u2028\u2029]"
)


class AlertKind(StrEnum):
    REGRESSION = "regression"
    OTHER_REASON = "red for another reason"
    FIXED = "fixed"
    KNOWN_GREEN = "known red turned green"
    STABLE = "flaky became stable"
    EXPIRED = "expired quarantine"
    GONE = "quarantine of cells that do not run"

    @property
    def is_red(self) -> bool:
        """Return whether the cells of such an alert are red: somebody has to look at them."""
        return self in {AlertKind.REGRESSION, AlertKind.OTHER_REASON, AlertKind.EXPIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One cause that a night found on one device.

    ``cause`` is the cause in words. ``cause_id`` is the id of its signature or finding, empty for an unexplained
    failure, which its ``gist`` (the first line of its error) identifies. ``phase`` is the phase that failed.
    ``first_seen`` is the first night on which the cause was seen, as far as is known. ``body`` is Markdown.
    """

    kind: AlertKind
    device: str
    title: str
    cause: str
    cause_id: str = ""
    gist: str = ""
    phase: str = ""
    moved: tuple[MovedPackage, ...] = ()
    cells: tuple[CellKey, ...] = ()
    first_seen: date
    body: str = ""

    @property
    def fingerprint(self) -> str:
        """Identifies the cause on every night: a hash of the device, the cause and the phase that failed."""
        return fingerprint(device=self.device, cause=self.cause_id or normal_gist(self.gist), phase=self.phase)

    @property
    def line(self) -> str:
        """The title in one line."""
        return " ".join(self.title.split())

    @property
    def summary(self) -> str:
        """What happened, in one line, e.g. ``regression on cpu, phase wrap, 3 cells; peft 0.20.0 -> 0.21.0``."""
        phase = f", phase {self.phase}" if self.phase else ""
        moved = f"; {', '.join(map(str, self.moved))}" if self.moved else ""
        return f"{self.kind} on {self.device}{phase}, {counted(len(self.cells), 'cell')}{moved}"


def fingerprint(*, device: str, cause: str, phase: str) -> str:
    """Return the hash that identifies a cause. It is stored in issues: a change of this function files them again."""
    text = json.dumps([device, cause, phase])
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def normal_gist(gist: str) -> str:
    """Return a gist without what differs between two runs of the same failure, such as numbers and addresses."""
    for pattern, replacement in VARIABLE:
        gist = pattern.sub(replacement, gist)
    return gist.strip()


def printable(text: str) -> str:
    """Return a text without control characters and characters that change the direction of writing."""
    return UNPRINTABLE.sub("", text.replace("\r\n", "\n"))


def shortened(text: str, limit: int, *, ending: str = "…") -> str:
    """Return at most ``limit`` characters of a text, with an ending if some are left out."""
    return text if len(text) <= limit else f"{text[: max(0, limit - len(ending))]}{ending}"


def cell_lines(cells: Iterable[CellKey], *, limit: int) -> list[str]:
    """List cells in Markdown, one line for each case with its sets, in at most ``limit`` characters."""
    sets_of: dict[str, list[str]] = {}
    for each in sorted(cells, key=lambda cell: (cell.case, cell.set)):
        sets_of.setdefault(each.case, []).append(each.set)
    lines: list[str] = []
    left_out = 0
    for case, sets in sets_of.items():
        line = f"- `{case}`: {', '.join(f'`{each}`' for each in sets)}"
        limit -= len(line) + 1
        if left_out or limit < 0:
            left_out += len(sets)
        else:
            lines.append(line)
    return [*lines, f"- and {counted(left_out, 'more cell')}"] if left_out else lines
