"""Tests killed and resumed runs: no finished cell is lost or run twice, and no process survives."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = {"sets": "good", "where": "group=quick"}
SOME = {"sets": "good", "where": "group=quick,slow", "workers": 2}  # one of them hangs, among processes it left behind

MOMENTS: dict[str, Callable[[Any], bool]] = {
    "when the run begins": lambda mini: (mini.out / "run.json").exists(),
    "while installing": lambda mini: any((mini.folder / "cache" / "envs").glob("*/bin")),
    "before the first cell": lambda mini: (mini.out / "work").exists(),
    "after the first cell": lambda mini: len(mini.lines()) >= 1,
    "between cells": lambda mini: len(mini.lines()) >= 7,
    "near the end": lambda mini: len(mini.lines()) >= 22,
}


def killed(mini: Any, until: Callable[..., None], when: Callable[[Any], bool], **fields: Any) -> None:
    """Start a run, and kill its main process once the condition holds."""
    started = mini.start(**fields)
    until(lambda: when(mini) or started.poll() is not None)
    with suppress(ProcessLookupError):
        os.kill(started.pid, signal.SIGKILL)
    started.communicate()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_continues_where_it_ended(mini: Any, until: Callable[..., None], moment: str) -> None:
    killed(mini, until, MOMENTS[moment], **QUICK)
    until(lambda: not mini.alive(), what=mini.alive)
    before, started = mini.lines(), Counter(mini.started_cells())

    assert mini.run(**QUICK, resume=True).returncode == 0

    finished = {line["case"] for line in before}
    again = Counter(mini.started_cells())
    assert mini.lines()[: len(before)] == before
    assert Counter(line["case"] for line in mini.lines()) == Counter(planned(mini))
    assert {case: again[case] for case in finished} == {case: started[case] for case in finished}


def planned(mini: Any) -> list[str]:
    record = json.loads((mini.out / "run.json").read_text(encoding="utf-8"))
    return [cell.partition("__")[2] for cell in record["planned"]]


def test_no_process_survives_a_run_killed_during_a_hang(mini: Any, until: Callable[..., None]) -> None:
    killed(mini, until, lambda mini: "hang-among-the-quick" in mini.started_cells(), limits=SLOW, **SOME)
    assert "hang-among-the-quick" in mini.started_cells()
    until(lambda: not mini.alive(), what=mini.alive, within_s=20)


def test_a_session_that_has_nothing_to_report_ends_with_its_harness(mini: Any, until: Callable[..., None]) -> None:
    only = {"sets": "good", "where": "case=hang-among-the-quick"}
    killed(mini, until, lambda mini: mini.started_cells(), limits=SLOW, **only)
    until(lambda: not mini.alive(), what=mini.alive, within_s=20)


def test_no_process_survives_a_run_interrupted_during_a_hang(mini: Any, until: Callable[..., None]) -> None:
    started = mini.start(limits=SLOW, **SOME)
    until(lambda: "hang-among-the-quick" in mini.started_cells())
    os.killpg(started.pid, signal.SIGINT)
    started.communicate()
    assert mini.alive() == {}


SLOW = {"silence_s": 300.0, "deadline_s": 600.0, "memory_mib": 300}  # only a kill ends a cell


def test_resuming_a_finished_run_runs_no_cell(run_mini: Callable[..., Any]) -> None:
    mini = run_mini(**QUICK)
    before, started = mini.lines(), mini.started_cells()
    assert mini.run(**QUICK, resume=True).returncode == 0
    assert (mini.lines(), mini.started_cells()) == (before, started)


def test_a_resumed_run_repeats_a_lost_cell(mini: Any) -> None:
    only = {"sets": "good", "where": "case=lost-saying-nothing"}
    assert mini.run(**only).returncode == 1
    assert mini.run(**only, resume=True).returncode == 1
    assert len(mini.started_cells()) == 4


def test_a_resumed_run_may_have_more_cells(run_mini: Callable[..., Any]) -> None:
    mini = run_mini(sets="good", where="case=pass-plain")
    assert mini.run(sets="good", where="case=pass-on-two-ranks", resume=True).returncode == 0
    assert planned(mini) == ["pass-plain", "pass-on-two-ranks"]


def test_a_torn_last_line_is_dropped_and_its_cell_run_again(run_mini: Callable[..., Any]) -> None:
    mini = run_mini(**QUICK)
    outcomes = mini.out / "outcomes.jsonl"
    outcomes.write_bytes(outcomes.read_bytes()[:-40])
    assert mini.run(**QUICK, resume=True).returncode == 0
    assert Counter(line["case"] for line in mini.lines()) == Counter(planned(mini))


def test_a_line_torn_within_a_character_is_dropped(mini: Any) -> None:
    only = {"sets": "good", "where": "case=fail-raising-odd-text"}
    mini.run(**only)
    outcomes = mini.out / "outcomes.jsonl"
    outcomes.write_bytes(outcomes.read_bytes().rpartition("\U0001f600".encode())[0] + b"\xf0\x9f")
    assert mini.run(**only, resume=True).stderr == ""
    assert [line["case"] for line in mini.lines()] == ["fail-raising-odd-text"]


@pytest.mark.parametrize("process", ["cases.runtime.forkserver", "exec(eval(", "-m pytest"])
def test_killing_a_process_of_the_harness_loses_no_cell(mini: Any, until: Callable[..., None], process: str) -> None:
    started = mini.start(**QUICK)
    until(lambda: len(mini.lines()) >= 2)
    os.kill(next(pid for pid, command in mini.alive().items() if process in command), signal.SIGKILL)
    _, said = started.communicate()
    assert (started.returncode, said) == (0, "")
    assert Counter(line["case"] for line in mini.lines()) == Counter(planned(mini))
    assert mini.alive() == {}


def test_results_of_other_case_code_are_not_reused(run_mini: Callable[..., Any]) -> None:
    mini = run_mini(sets="good", where="case=pass-plain")
    outcomes = mini.out / "outcomes.jsonl"
    other = re.sub(r"\bminisuite=\w+", "minisuite=000000", outcomes.read_text(encoding="utf-8"))
    outcomes.write_text(other, encoding="utf-8")
    assert mini.run(sets="good", where="case=pass-plain", resume=True).returncode == 0
    assert len(mini.started_cells()) == 2
