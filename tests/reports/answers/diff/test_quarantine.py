"""The quarantine: bad entries, expiry, and alarms."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from reports.answers.diff import quarantine
from reports.answers.diff.changes import ChangeKind, DiffSide
from reports.answers.diff.compare import compare
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.diff.changes import ResultDiff

    Compare = Callable[[str, str], ResultDiff]

TODAY = date(2026, 11, 24)
ENTRY = """
[[cells]]
case = "train-*"
sets = "2024-*"
device = "cpu"
kind = "red"
reason = "peft#1"
owner = "ann"
since = 2026-11-01
expires = 2026-12-01
"""


@pytest.fixture
def compared(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Compare:
    def side(verdict: str) -> DiffSide:
        matrix = grid(build_run(), [build_set()], [build_outcome(verdict=verdict)])
        return DiffSide(name=verdict, device="cpu", hardware="cpu: test", matrix=matrix)

    return lambda base, new: compare(side(base), side(new), [("2024-06", "2024-06")], rows=[])


def parsed(text: str) -> quarantine.Quarantine:
    return quarantine.parsed(text, name="quarantine.toml", today=TODAY)


def test_a_quarantined_red_cell_is_no_alarm(compared: Compare) -> None:
    diff = quarantine.applied(compared("pass", "fail"), parsed(ENTRY))
    assert (diff.counts[ChangeKind.REGRESSED], diff.regressions) == (1, ())


def test_a_quarantined_red_cell_that_is_green_is_an_alarm(compared: Compare) -> None:
    (alarm,) = quarantine.applied(compared("fail", "pass"), parsed(ENTRY)).alarms
    assert str(alarm).startswith("quarantined as red, but green: 2024-06__train-lora-ddp-fp32; remove or narrow")


@pytest.mark.parametrize(("nights", "alarms"), [(3, 1), (2, 0)])
def test_a_flaky_cell_is_an_alarm_after_enough_stable_nights(nights: int, alarms: int, compared: Compare) -> None:
    recent = {("2024-06", "train-lora-ddp-fp32"): [frozenset({"pass"})] * nights}
    entries = parsed(ENTRY.replace('"red"', '"flaky"'))
    diff = quarantine.applied(compared("pass", "pass"), entries, recent=recent, nights=3)
    assert len(diff.alarms) == alarms


@pytest.mark.parametrize(("nights", "cell", "alarms"), [(3, "a", 1), (2, "a", 0), (3, "train-a", 0)])
def test_an_entry_whose_cells_do_not_run_any_more_is_an_alarm(
    nights: int, cell: str, alarms: int, compared: Compare
) -> None:
    recent = {("2024-06", cell): [frozenset({"pass"})] * nights}
    entries = parsed(ENTRY.replace('"train-*"', '"train-a*"'))
    found = quarantine.applied(compared("pass", "pass"), entries, recent=recent, nights=3).alarms
    words = "quarantined, but no such cell ran for 3 nights; remove the entry train-a* on 2024-*, cpu, red (owner: ann)"
    assert [str(each) for each in found] == [words] * alarms


def test_an_expired_entry_is_named_and_counts_as_absent(compared: Compare) -> None:
    diff = quarantine.applied(compared("pass", "fail"), parsed(ENTRY.replace("2026-12-01", "2026-11-20")))
    assert len(diff.regressions) == 1
    assert str(diff.alarms[-1]).startswith("quarantine expired on 2026-11-20: train-* on 2024-*, cpu, red (owner: ann)")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('kind = "red"', 'kind = "odd"', "cells[1].kind: Input should be 'red' or 'flaky'"),
        ('owner = "ann"', "", "cells[1].owner: Field required"),
        ('owner = "ann"', 'owner = ""', "cells[1].owner: String should have at least 1 character"),
        ("expires = 2026-12-01", "expires = 2026-10-01", "cells[1]: expires 2026-10-01 is not after since 2026-11-01"),
        ("[[cells]]", "[[rows]]", "rows: expected only tables [[cells]]"),
        ("[[cells]]", "[[cells", "not valid TOML"),
    ],
)
def test_a_bad_entry_is_one_sentence(old: str, new: str, said: str) -> None:
    with pytest.raises(UserError, match=r"^quarantine\.toml: ") as raised:
        parsed(ENTRY.replace(old, new))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
