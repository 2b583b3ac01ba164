"""The outcomes of a run directory, which stay in ``outcomes.jsonl``: each is read at its place in the file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matrix.errors import UserError
from matrix.run import store
from matrix.run.outcome import Outcome
from reports.results.outcome_rows import OutcomeRow

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class OutcomeLines:
    """A file with one outcome a line, and the places in bytes where the outcomes begin."""

    path: Path
    places: list[int] = field(default_factory=list)
    known: dict[Any, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.path.parent

    def outcome(self, row: OutcomeRow) -> Outcome:
        """Return the whole outcome of a row.

        Raises:
            UserError: the file changed since its places were read.
        """
        with self.path.open("rb") as file:
            file.seek(self.places[row.number])
            line = file.readline()
        try:
            return Outcome.model_validate_json(line)
        except ValueError:
            raise UserError(f"{self.path}: changed while it was read; do it again") from None

    def add(self, place: int, outcome: Outcome) -> OutcomeRow:
        """Return the row of an outcome; its texts and options are those of earlier rows that have the same."""
        self.places.append(place)
        options = json.dumps(outcome.options)
        return OutcomeRow(
            source=self,
            number=len(self.places) - 1,
            set=self.shared(outcome.set),
            case=self.shared(outcome.case),
            group=self.shared(outcome.group),
            why=self.shared(outcome.why),
            options=self.known.setdefault(("options", options), outcome.options),
            verdict=outcome.verdict,
            reason=self.shared(outcome.reason),
            repeat=outcome.repeat,
            lock=self.shared(outcome.lock),
            code=self.shared(outcome.code),
            modules=outcome.modules,
            hardware=self.shared(outcome.hardware),
            started=outcome.started,
            has_facts=bool(outcome.facts),
        )

    def shared(self, text: str) -> str:
        found: str = self.known.setdefault(text, text)
        return found


def rows(path: Path) -> tuple[tuple[OutcomeRow, ...], tuple[str, ...]]:
    """Return the outcomes of a file, and a sentence for each kind of damage.

    Raises:
        UserError: a line is JSON but no outcome, or a newer harness wrote it.
    """
    lines, found, damaged = OutcomeLines(path), [], []
    for number, place, outcome in store.lines(path):
        if outcome is None:
            damaged.append(number)
        else:
            found.append(lines.add(place, outcome))
    return tuple(found), store.damage_words(path, damaged)
