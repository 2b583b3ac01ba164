from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from reports.render.progress_bar import LiveProgress, PlainProgress, choose, left

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome
    from matrix.run.progress import Progress


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def watched(progress: Progress, *outcomes: Outcome) -> None:
    progress.set_started("2024-06", 52)
    progress.stage("2024-06", "installing")
    for outcome in outcomes:
        progress.cell_done(outcome)
    progress.set_done("2024-06")
    progress.close()


@pytest.fixture
def pipe() -> Console:
    return Console(file=io.StringIO(), width=40)


@pytest.fixture
def terminal() -> Console:
    return Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None, _environ={"TERM": "xterm"})


def test_plain_lines_are_one_per_event_however_narrow(pipe: Console, build_outcome: Callable[..., Outcome]) -> None:
    watched(PlainProgress(pipe, clock=iter([0.0, 9.0]).__next__), build_outcome(), build_outcome("b", verdict="fail"))
    assert text_of(pipe).splitlines() == [
        "2024-06 installing",
        "[ 1/52] 2024-06 train-lora-ddp-fp32 pass 0.8s",
        "[ 2/52] 2024-06 b fail 0.8s",
        "2024-06 done in 9.0 s: 1 pass, 1 fail",
    ]


def test_a_terminal_gets_a_live_bar_and_a_pipe_plain_lines(pipe: Console, terminal: Console) -> None:
    live = choose(terminal)
    live.close()
    assert isinstance(live, LiveProgress)
    assert isinstance(choose(pipe), PlainProgress)


def test_a_cell_that_went_wrong_scrolls_by(terminal: Console, build_outcome: Callable[..., Outcome]) -> None:
    watched(LiveProgress(terminal), build_outcome(verdict="hang", reason="rank 1 silent"))
    assert "∞ hang  2024-06__train-lora-ddp-fp32  rank 1 silent" in text_of(terminal)


def test_a_finished_set_leaves_its_counts(terminal: Console, build_outcome: Callable[..., Outcome]) -> None:
    watched(LiveProgress(terminal, planned=104), build_outcome(), build_outcome("b", verdict="skip"))
    assert "2024-06  1 pass, 1 skip  in " in text_of(terminal)


def test_time_left_follows_the_pace_so_far() -> None:
    assert left(done=4, total=12, elapsed=10.0) == 20.0


def test_there_is_no_time_left_before_there_is_a_pace() -> None:
    assert left(done=0, total=12, elapsed=10.0) is None


def test_a_resumed_set_without_missing_cells_prints_nothing_to_run(pipe: Console) -> None:
    watched(PlainProgress(pipe, clock=iter([0.0, 1.0]).__next__))
    assert text_of(pipe).endswith("2024-06 done in 1.0 s: nothing to run\n")
