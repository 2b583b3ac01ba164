"""Outcomes that stay in their file: a row has the few values that merging and counting need, and reads the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from matrix.keys import CellKey
from matrix.run import code_digest
from matrix.run.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from cases.space.verdict import Verdict
    from matrix.run.outcome import Scalar


class OutcomeSource(Protocol):
    """A file of outcomes, which it reads one by one. Its ``folder`` has the log files of a run, if it keeps any."""

    @property
    def folder(self) -> Path | None: ...

    def outcome(self, row: OutcomeRow) -> Outcome:
        """Return the whole outcome of a row of this file.

        Raises:
            UserError: the file changed or is damaged.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """An outcome of a file. Texts and options are shared by all rows that have them."""

    source: OutcomeSource
    number: int
    set: str
    case: str
    group: str
    why: str
    options: Mapping[str, Scalar]
    verdict: Verdict
    reason: str
    repeat: int
    lock: str
    code: str
    modules: str
    hardware: str
    started: datetime
    has_facts: bool

    @property
    def cell(self) -> str:
        return str(CellKey(self.set, self.case))

    def read(self) -> Outcome:
        """Read the whole outcome.

        Raises:
            UserError: the file changed or is damaged.
        """
        outcome = self.source.outcome(self)
        return outcome if outcome.repeat == self.repeat else outcome.model_copy(update={"repeat": self.repeat})


AnyOutcome = Outcome | OutcomeRow


def whole(outcome: AnyOutcome) -> Outcome:
    return outcome.read() if isinstance(outcome, OutcomeRow) else outcome


class LazyOutcomes(Mapping[tuple[str, str], Outcome]):
    """Outcomes by case and set. A row is read whenever it is looked up, so that the outcomes take no memory."""

    def __init__(self, rows: Mapping[tuple[str, str], AnyOutcome]) -> None:
        self.rows = rows

    def __getitem__(self, cell: tuple[str, str]) -> Outcome:
        return whole(self.rows[cell])

    def __contains__(self, cell: object) -> bool:
        return cell in self.rows

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def have_same_code(one: AnyOutcome, other: AnyOutcome) -> bool:
    """Return whether the same case code produced both outcomes, as far as both imported it."""
    return code_digest.same_code(one.modules, one.code, other.modules, other.code)


def last_attempts(outcomes: Iterable[AnyOutcome]) -> tuple[AnyOutcome, ...]:
    """Return the last outcome of each repeat of a cell; outcomes come in the order in which they were stored.

    A later outcome replaces an earlier one, even if its time is earlier: a clock may go back.
    """
    return tuple({(each.case, each.set, each.repeat): each for each in outcomes}.values())
