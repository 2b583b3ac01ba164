"""Each moment of a rank goes into one part of its time: its phase, or what is done beside it."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from cases.runtime.rank import Pipe
from cases.space.verdict import Phase


class Told:
    """A rank's reports, and a clock that stands still unless it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reading, writing = os.pipe()
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.say = Pipe(writing)

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def spent(self) -> dict[str, float]:
        os.close(self.say.descriptor)
        with os.fdopen(self.reading, "rb") as source:
            events: list[dict[str, Any]] = [json.loads(line) for line in source]
        whole: dict[str, float] = {}
        for name, seconds in (pair for event in events for pair in event.get("spent", {}).items()):
            whole[name] = whole.get(name, 0.0) + seconds
        return {name: seconds for name, seconds in whole.items() if seconds}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


def test_what_is_done_beside_a_phase_is_not_of_it(told: Told) -> None:
    told.say.phase(Phase.LOAD)
    told.passes(1.0)
    with told.say.spending("group"):
        told.passes(2.0)
    told.passes(4.0)
    told.say.end_phase()
    assert told.spent() == {"load_s": 5.0, "group_s": 2.0}


def test_the_innermost_part_counts_and_a_phase_that_begins_in_one_goes_on_after_it(told: Told) -> None:
    told.say.phase(Phase.SAVE)
    with told.say.observing():
        told.say.phase(Phase.INFER)
        told.passes(1.0)
        with told.say.spending("reference"):
            told.passes(2.0)
    told.passes(4.0)
    told.say.end_phase()
    assert told.spent() == {"judging_s": 1.0, "reference_s": 2.0, "infer_s": 4.0}


def test_the_first_time_of_a_step_is_told_on_its_own_too(told: Told) -> None:
    for seconds in (8.0, 1.0, 1.0):
        told.say.phase(Phase.FORWARD)
        told.passes(seconds)
    told.say.end_phase()
    assert told.spent() == {"forward_s": 10.0, "first_forward_s": 8.0}


def test_time_before_an_error_is_told(told: Told) -> None:
    told.say.phase(Phase.LOAD)
    told.passes(3.0)
    told.say.error(ValueError("no"))
    assert told.spent() == {"load_s": 3.0}
