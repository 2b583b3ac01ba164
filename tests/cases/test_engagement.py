"""Every option leaves evidence that it ran."""

from __future__ import annotations

from cases.engagement import EVIDENCE
from cases.options import OPEN, names


def test_every_option_has_a_row_of_evidence_and_only_those() -> None:
    assert tuple(EVIDENCE) == tuple(name for name in names() if name not in OPEN)
