"""A supervisor that notices a hang says what its limit was, and is done with it within a minute."""

from __future__ import annotations

import socket
from types import ModuleType
from typing import Any

import pytest

from cases import autopsy, flight, patience, pool, supervise
from cases.job import Job
from cases.judge import RankEnd
from cases.supervise import Supervisor, heard, starved_processes
from cases.verdict import Phase


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"silence_s": 15.0}, "no sign of life for 15 s"),
        ({"silence_s": 240.0, "silence_why": "it compiles"}, "no sign of life for 240 s (it compiles)"),
    ],
)
def test_the_limit_is_said_and_why_it_is_longer_than_others(other: dict[str, Any], said: str) -> None:
    fields = {"kind": "cell", "name": "a", "ranks": 2, "device": "cpu", "folder": "a", "cache": "b", **other}
    with socket.socket(socket.AF_UNIX) as client:
        assert Supervisor(ModuleType("suite"), Job(**fields), client).silence_limit() == said


def test_however_badly_a_hang_ends_its_gpus_are_free_or_given_up_within_a_minute() -> None:
    """From the last sign of life: each part takes its whole time."""
    looking = autopsy.STACKS_S + flight.DUMP_S + autopsy.DEVICES_S + autopsy.KILLED_S
    assert patience.SILENCE_S["cuda"] + looking + supervise.ENDS_S + pool.SETTLES_S <= 60


def test_the_longest_silence_is_kept_and_an_import_has_none() -> None:
    end = RankEnd(0)
    for event, now in (({"phase": "import"}, 0.0), ({"phase": "load"}, 30.0), ({"beat": True}, 32.5), ({}, 33.0)):
        heard(end, event, now)
    assert end.phase is Phase.LOAD
    assert end.metrics["longest_silence_s"] == 2.5


def test_the_kernel_tells_how_many_processes_it_ended() -> None:
    assert starved_processes() >= 0
