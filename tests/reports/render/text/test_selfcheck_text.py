"""The document of a selfcheck names its hardware, code and versions."""

from __future__ import annotations

from datetime import UTC, datetime

from matrix.run.outcome import RunRecord, SetRecord
from reports.render.text.selfcheck_text import run_document


def test_the_document_has_hardware_code_and_versions() -> None:
    record = RunRecord(
        harness="0.1.0",
        code="abc",
        started=datetime(2026, 11, 22, tzinfo=UTC),
        device="cuda",
        request={},
        planned=(),
        hardware="cuda: NVIDIA H200 x 2",
        facts={"driver": "580.159.04"},
    )
    column = SetRecord(key="2026-11", python="3.11", pins={"torch": "2.15.0"}, as_of="2026-11-15", why="")
    assert run_document(record, [column]) == {
        "hardware": "cuda: NVIDIA H200 x 2",
        "started": "2026-11-22T00:00:00+00:00",
        "harness": "0.1.0",
        "code": "abc",
        "facts": {"driver": "580.159.04"},
        "versions": {"2026-11": {"torch": "2.15.0"}},
    }
