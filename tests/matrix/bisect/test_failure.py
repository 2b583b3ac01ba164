"""A candidate is red only with the failure of the bad end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cases.space.verdict import Verdict
from matrix.bisect.failure import gist, no_cause, state_of
from matrix.bisect.state import State
from matrix.run.outcome import CheckRecord, ErrorRecord, Outcome


def outcome(verdict: Verdict, *, error: str = "", failed: tuple[str, ...] = ()) -> Outcome:
    return Outcome(
        set="2025-01",
        case="a",
        group="",
        why="",
        options={},
        verdict=verdict,
        error=ErrorRecord(type="ValueError", message=error) if error else None,
        checks=tuple(CheckRecord(name=name, value=1, op="<=", bound=0, ok=False) for name in failed),
        started=datetime.now(UTC),
        seconds=0.0,
    )


AT_BAD_END = outcome(Verdict.FAIL, error="got 3 tensors of 'lora' at 0x7f")


@pytest.mark.parametrize(
    ("runs", "state"),
    [
        ([outcome(Verdict.PASS)], State.GREEN),
        ([outcome(Verdict.FAIL, error="got 4 tensors of 'dora' at 0x8e")], State.RED),
        ([outcome(Verdict.FAIL, error="no module")], State.UNTESTABLE),
        ([outcome(Verdict.PASS), outcome(Verdict.FAIL, error="got 4 tensors of 'x' at 0x1")], State.RED),
        ([outcome(Verdict.BLOCKED)], State.UNTESTABLE),
        ([outcome(Verdict.WRONG, failed=("loss",))], State.UNTESTABLE),
    ],
)
def test_the_state_of_a_candidate(runs: list[Outcome], state: State) -> None:
    assert state_of(runs, AT_BAD_END, no_cause) is state


def test_wrong_cells_fail_alike_if_they_share_a_failed_check() -> None:
    at_bad_end = outcome(Verdict.WRONG, failed=("loss", "gradient"))
    assert state_of([outcome(Verdict.WRONG, failed=("loss",))], at_bad_end, no_cause) is State.RED
    assert state_of([outcome(Verdict.WRONG, failed=("memory",))], at_bad_end, no_cause) is State.UNTESTABLE


def test_a_known_cause_joins_different_messages() -> None:
    other = outcome(Verdict.FAIL, error="another message")
    assert state_of([other], AT_BAD_END, lambda _: "a-signature") is State.RED


def test_a_gist_has_no_numbers_names_or_paths() -> None:
    assert gist("<environment>/lib/x.py: got 3 of 'a' in /tmp/b/c.py") == gist(
        "<environment>/y.py: got 44 of 'b' in /d/e"
    )
