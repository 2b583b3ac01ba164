"""The evidence of a stage that failed: a finding about the stack, not an error of the harness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cases.space.verdict import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A stage that failed: its phase, the reason in one sentence, and the whole log."""

    phase: Phase
    reason: str
    exit_code: int | None = None
    log: str = ""
