"""Each moment of a rank counts for exactly one part: its phase or a separately timed part."""

from __future__ import annotations

import os
import time

import pytest

from cases.runtime.rank import PipeReporter
from cases.runtime.wire import Event
from cases.space.verdict import Phase


class TimedRank:
    """A rank's reporter, and a clock that only a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reading, writing = os.pipe()
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.reporter = PipeReporter(writing)

    def work(self, seconds: float) -> None:
        self.now += seconds

    def spent(self) -> dict[str, float]:
        os.close(self.reporter.descriptor)
        with os.fdopen(self.reading, "rb") as source:
            events = [Event.from_json(line) for line in source]
        whole: dict[str, float] = {}
        for name, seconds in (pair for event in events for pair in event.spent.items()):
            whole[name] = whole.get(name, 0.0) + seconds
        return {name: seconds for name, seconds in whole.items() if seconds}


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> TimedRank:
    return TimedRank(monkeypatch)


def test_a_separately_timed_part_does_not_count_for_its_phase(rank: TimedRank) -> None:
    rank.reporter.phase(Phase.LOAD)
    rank.work(1.0)
    with rank.reporter.spending("group"):
        rank.work(2.0)
    rank.work(4.0)
    rank.reporter.end_phase()
    assert rank.spent() == {"load_s": 5.0, "group_s": 2.0}


def test_a_phase_that_begins_in_a_timed_part_continues_after_it(rank: TimedRank) -> None:
    rank.reporter.phase(Phase.SAVE)
    with rank.reporter.observing():
        rank.reporter.phase(Phase.INFER)
        rank.work(1.0)
        with rank.reporter.spending("reference"):
            rank.work(2.0)
    rank.work(4.0)
    rank.reporter.end_phase()
    assert rank.spent() == {"judging_s": 1.0, "reference_s": 2.0, "infer_s": 4.0}


def test_the_first_time_of_a_step_is_a_separate_metric(rank: TimedRank) -> None:
    for seconds in (8.0, 1.0, 1.0):
        rank.reporter.phase(Phase.FORWARD)
        rank.work(seconds)
    rank.reporter.end_phase()
    assert rank.spent() == {"forward_s": 10.0, "first_forward_s": 8.0}


def test_the_time_before_an_error_counts(rank: TimedRank) -> None:
    rank.reporter.phase(Phase.LOAD)
    rank.work(3.0)
    rank.reporter.error(ValueError("no"))
    assert rank.spent() == {"load_s": 3.0}
