from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from matrix.run.outcome import CheckRecord, ErrorRecord
from reports.results.wording import again, check_words, device, first_line, headline, plain, seconds_words, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord


def test_plain_text_cannot_control_a_terminal_or_reverse_the_reading_order() -> None:
    assert not set(plain("a\x1b[31m\x00\x9b\u202e\rb")) & set("\x1b\x00\x9b\u202e\r")


def test_plain_text_keeps_lines_and_emoji() -> None:
    assert plain("a\n\U0001f600") == "a\n\U0001f600"


def test_the_first_line_is_the_first_that_is_not_blank() -> None:
    assert first_line("\n  \n why \n more") == "why"


def test_a_long_text_ends_in_an_ellipsis() -> None:
    assert trimmed("x" * 10, 5) == "xxxx…"


def test_an_error_is_the_headline_before_the_reason(build_outcome: Callable[..., Outcome]) -> None:
    error = ErrorRecord(type="ValueError", message="no\nmore")
    assert headline(build_outcome(verdict="fail", error=error, reason="other")) == "ValueError: no"


def test_a_cell_without_a_reason_gets_the_meaning_of_its_verdict(build_outcome: Callable[..., Outcome]) -> None:
    assert headline(build_outcome(verdict="hang")) == "a rank stopped making progress"


@pytest.mark.parametrize(
    ("name", "value", "op", "bound", "words"),
    [
        ("loss", 0.00522, "<=", 5.36e-07, "loss differs by 0.00522 (allowed: 5.36e-07)"),
        ("weights", 0.3, "<=", 0.01, "weights differ by 0.3 (allowed: 0.01)"),
        ("reloaded logits", float("nan"), "<=", 0.01, "reloaded logits differ by nan (allowed: 0.01)"),
        ("gradients off", 2, "<=", 1.5, "gradients differ by 2 (allowed: 1.5)"),
        ("loss", 130.0, "<=", 100.0, "loss: 130 (allowed: at most 100)"),
        ("tensors in float32", 3, ">=", 4, "tensors in float32: 3 (required: at least 4)"),
        ("safetensors written", False, "==", True, "safetensors written: False (expected: True)"),
    ],
)
def test_a_failed_check_is_a_sentence(name: str, value: Any, op: str, bound: Any, words: str) -> None:
    assert check_words(CheckRecord(name=name, value=value, op=op, bound=bound, ok=False)) == words


def test_the_command_survives_a_shell() -> None:
    assert shlex.split(again("a b", "c"))[3:] == ["a b", "--where", "case=c"]


def test_a_set_over_a_hosts_torch_needs_its_wheels_again() -> None:
    assert "--offline WHEELS --system-torch" in again("2026-11+torch2.11.0", "c", backend="system")


def test_a_cpu_run_is_called_one(build_run: Callable[..., RunRecord]) -> None:
    assert device(build_run(device="cpu")) == "CPU (gloo)"
    assert device(build_run(device="cuda")) == "GPU (cuda)"
    assert device(build_run(device="cuda-gloo")) == "one GPU that all ranks share (cuda-gloo)"


def test_a_gpu_run_is_never_called_cpu(build_run: Callable[..., RunRecord]) -> None:
    assert device(build_run(device="cuda")) == "GPU (cuda)"


def test_long_times_are_in_minutes() -> None:
    assert [seconds_words(0.84), seconds_words(59.97), seconds_words(125)] == ["0.8 s", "1 min 00 s", "2 min 05 s"]
