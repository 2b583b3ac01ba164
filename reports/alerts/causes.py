"""Groups the alerts of a night by cause, and decides which cells of a cause are red afterwards."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reports.alerts.document import AlertDocument, stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from matrix.keys import CellKey
    from reports.alerts.alert import Alert


@dataclass(frozen=True, kw_only=True)
class CauseUpdate:
    """What one night says about one cause: the alerts with one fingerprint, and all cells that were green."""

    document: AlertDocument
    tonight: frozenset[CellKey] = frozenset()  # all cells that were green on the device of the cause

    @cached_property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(each.alert for each in self.document.alerts)

    @property
    def night(self) -> date:
        return self.document.night

    @property
    def fingerprint(self) -> str:
        return self.alerts[0].fingerprint

    @property
    def main(self) -> Alert:
        """The alert that describes the cause: a red one if there is one."""
        return next((each for each in self.alerts if each.kind.is_red), self.alerts[0])

    @property
    def is_red(self) -> bool:
        return self.main.kind.is_red

    @property
    def red(self) -> frozenset[CellKey]:
        return frozenset(cell for each in self.alerts if each.kind.is_red for cell in each.cells)

    @property
    def green(self) -> frozenset[CellKey]:
        """The cells that are green; a cell that is red in another alert of the night is not among them."""
        turned = frozenset(cell for each in self.alerts if not each.kind.is_red for cell in each.cells)
        return (turned | self.tonight) - self.red

    @property
    def is_gone(self) -> bool:
        """Return whether the cause is green everywhere: a green alert without cells says so."""
        return not self.is_red and any(not each.cells for each in self.alerts)

    @property
    def digest(self) -> str:
        """Identifies the content: the same update is sent once."""
        return hashlib.sha256(json.dumps(stored(self.document), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def data(self) -> dict[str, Any]:
        return stored(self.document)


def causes(document: AlertDocument) -> Iterator[CauseUpdate]:
    """Group the alerts of a document by fingerprint, in order; the green cells of the night are left out."""
    groups: dict[str, list[Any]] = {}
    for record in document.alerts:
        groups.setdefault(record.alert.fingerprint, []).append(record)
    for records in groups.values():
        yield CauseUpdate(document=document.model_copy(update={"alerts": tuple(records), "green": (), "red": ()}))
