"""Messages between processes survive a round trip over JSON, and a reader rejects unknown schemas."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cases.runtime.silence import SilenceTimeout
from cases.runtime.wire import (
    CellReport,
    ErrorReport,
    Event,
    Job,
    Limits,
    Message,
    ServerStart,
    SessionRequest,
    WireError,
)
from cases.space.verdict import Phase, Verdict, at_most

JOB = Job("cell", "a", 2, "cuda", "folder", "cache", source="kept", gpus=("GPU-a", "GPU-b"))
REPORT = CellReport(
    "a",
    Verdict.FAIL,
    "ValueError: no",
    Phase.LOAD,
    checks=(at_most("gradient", 0.1, 0.2),),
    error=ErrorReport("ValueError", "no", "Traceback", rank=1),
    metrics={"load_s": 1.0},
    facts={"torch": "2.9"},
    modules=("cases.suite",),
    late_modules=("torch._inductor",),
    started=datetime(2026, 1, 1, tzinfo=UTC),
    seconds=2.0,
    server=ServerStart("warm", preload_s=8.0),
)
MESSAGES: list[Message] = [
    JOB,
    REPORT,
    CellReport("a", Verdict.SKIP, "no GPU"),
    SessionRequest(("a", "b"), "cpu", "f", "c", Limits(silence_s=3.0), ("a",), {"b": "kept"}, 7),
    Event(),
    Event(phase=Phase.SAVE, checks=(at_most("loss", 1.0, 2.0),), spent={"save_s": 1.0}, done=True),
    Event(error=ErrorReport("OSError", "no space", is_ours=True)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_a_round_trip(message: Message) -> None:
    assert type(message).from_json(message.to_line()) == message


@pytest.mark.parametrize("kind", [CellReport, Event, Job, SessionRequest])
def test_a_newer_schema_is_rejected_with_a_reason(kind: type[Message]) -> None:
    with pytest.raises(WireError, match=rf"{kind.__name__}: schema 99 is newer than 1, .*; update ftmatrix"):
        kind.from_json('{"schema": 99, "anything": 1}')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object with a schema number"),
        ('{"name": "a"}', "expected a JSON object with a schema number"),
        ('{"schema": 1, "name": "a"}', "verdict"),
        ('{"schema": 1, "name": "a", "verdict": "maybe"}', "maybe"),
        ('{"schema": 1, "name": "a", "verdict": "pass", "colour": 1}', "colour"),
        ('{"schema": 1, "name": "a", "verdict": "pass", "checks": [1]}', "CellReport: "),
    ],
)
def test_an_unreadable_message_is_rejected_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(WireError, match=why):
        CellReport.from_json(text)


def test_a_message_is_one_line_of_strict_utf_8() -> None:
    line = CellReport("a", Verdict.FAIL, "two\nlines \ud800 \U0001f600").to_line()
    assert line.count(b"\n") == 1
    assert json.loads(line.decode())["reason"] == "two\nlines ? \U0001f600"


def test_numbers_that_are_not_finite_survive() -> None:
    (check,) = CellReport.from_json(
        CellReport("a", Verdict.WRONG, checks=(at_most("loss", float("inf"), 1.0),)).to_json()
    ).checks
    assert check.value == float("inf")


COMPILING = SilenceTimeout(240.0, "it compiles")


def request(**limits: Any) -> SessionRequest:
    return SessionRequest(("a",), "cuda", "folder", "cache", Limits(**limits))


def test_a_job_has_the_silence_timeout_of_its_case_with_the_reason() -> None:
    job = request(deadline_s=99.0).job("cell", "a", 2, timeout=COMPILING)
    assert (job.silence_s, job.silence_why, job.deadline_s) == (240.0, "it compiles", 99.0)


def test_the_silence_timeout_of_a_request_overrides_the_one_of_a_case() -> None:
    job = request(silence_s=3.0).job("cell", "a", 2, timeout=COMPILING)
    assert (job.silence_s, job.silence_why) == (3.0, "")
