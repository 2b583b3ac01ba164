"""A supervisor keeps the state of each rank from its events."""

from __future__ import annotations

from cases.runtime.rank_state import RankState, parse_event
from cases.runtime.wire import Event
from cases.space.verdict import Phase


def test_the_longest_silence_is_kept_and_an_import_has_none() -> None:
    rank = RankState(0)
    for event, now in ((Event(phase=Phase.IMPORT), 0.0), (Event(phase=Phase.LOAD), 30.0), (Event(), 32.5)):
        rank.receive(event, now)
    assert rank.phase is Phase.LOAD
    assert rank.metrics["longest_silence_s"] == 2.5


def test_times_of_the_same_part_add_up() -> None:
    rank = RankState(0)
    for seconds in (1.0, 2.0):
        rank.receive(Event(spent={"load_s": seconds}), now=0.0)
    assert rank.metrics["load_s"] == 3.0


def test_an_unreadable_event_is_an_error_of_the_harness() -> None:
    error = parse_event(b'{"done": true}').error
    assert error is not None
    assert (error.type, error.is_ours) == ("ForeignReport", True)


def test_a_rank_without_a_last_event_has_vanished() -> None:
    assert RankState(0, exit_code=0).vanished
    assert not RankState(0, exit_code=0, done=True).vanished
    assert not RankState(0, exit_code=-9, ended_by_us=True).vanished


def test_time_in_which_a_rank_was_starved_does_not_count_as_silence() -> None:
    rank = RankState(0)
    rank.receive(Event(phase=Phase.LOAD), now=10.0)
    rank.starve(4.0, now=20.0)
    assert rank.counted_silence(20.0) == 6.0
    rank.starve(100.0, now=25.0)  # a wait that began before the last event
    assert rank.counted_silence(25.0) == 0.0
    rank.receive(Event(), now=26.0)
    assert rank.counted_silence(30.0) == 4.0
