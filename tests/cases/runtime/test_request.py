"""What the harness asks of a suite becomes jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cases.conftest import Request
from cases.runtime.silence import Patience

COMPILING = Patience(240.0, "it compiles")


def request(**limits: Any) -> Request:
    return Request(("a",), "cuda", Path("folder"), Path("cache"), limits)


def test_a_case_gets_the_silence_that_it_is_allowed_with_the_reason() -> None:
    job = request(deadline_s=99.0).job("cell", "a", 2, COMPILING)
    assert (job.silence_s, job.silence_why, job.deadline_s) == (240.0, "it compiles", 99.0)


def test_a_limit_that_was_asked_for_goes_before() -> None:
    job = request(silence_s=3.0).job("cell", "a", 2, COMPILING)
    assert (job.silence_s, job.silence_why) == (3.0, "")
