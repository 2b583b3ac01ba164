from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from matrix.run.outcome import ErrorRecord
from reports.results.wording import again, device, first_line, headline, plain, seconds_words, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord


def test_plain_text_cannot_steer_a_terminal_or_turn_the_reading_order() -> None:
    assert not set(plain("a\x1b[31m\x00\x9b\u202e\rb")) & set("\x1b\x00\x9b\u202e\r")


def test_plain_text_keeps_lines_and_emoji() -> None:
    assert plain("a\n\U0001f600") == "a\n\U0001f600"


def test_the_first_line_that_says_something_is_taken() -> None:
    assert first_line("\n  \n why \n more") == "why"


def test_a_long_text_ends_in_an_ellipsis() -> None:
    assert trimmed("x" * 10, 5) == "xxxx…"


def test_an_error_is_the_headline_before_the_reason(build_outcome: Callable[..., Outcome]) -> None:
    error = ErrorRecord(type="ValueError", message="no\nmore")
    assert headline(build_outcome(verdict="fail", error=error, reason="other")) == "ValueError: no"


def test_a_cell_that_says_nothing_gets_the_verdicts_meaning(build_outcome: Callable[..., Outcome]) -> None:
    assert headline(build_outcome(verdict="hang")) == "a rank stopped making progress"


def test_the_command_survives_a_shell() -> None:
    assert shlex.split(again("a b", "c"))[3:] == ["a b", "--where", "case=c"]


def test_a_set_over_a_hosts_torch_needs_its_wheels_again() -> None:
    assert "--offline WHEELS --system-torch" in again("2026-11+torch2.11.0", "c", backend="system")


def test_a_cpu_run_is_called_one(build_run: Callable[..., RunRecord]) -> None:
    assert device(build_run(device="cpu")) == "CPU (gloo)"


def test_a_gpu_run_is_never_called_cpu(build_run: Callable[..., RunRecord]) -> None:
    assert device(build_run(device="cuda")) == "GPU (cuda)"


def test_long_times_are_in_minutes() -> None:
    assert [seconds_words(0.84), seconds_words(59.97), seconds_words(125)] == ["0.8 s", "1 min 00 s", "2 min 05 s"]
