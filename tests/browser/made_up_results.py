"""Results that no run measured: many cells, and text that tries to break a page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cases.space.verdict import Phase, Verdict
from matrix.run.outcome import CheckRecord, ErrorRecord, Outcome, RunRecord, SetRecord
from reports.render.write import write_results
from reports.results.loading import results

if TYPE_CHECKING:
    from pathlib import Path

NOON: Final = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RED_SHARE: Final = 7  # every seventh cell is red
MARKUP: Final = "</script><script>alert(1)</script><img src=x onerror=alert(1)> <!-- {{ 7 * 7 }} ]]> &amp; \u2028"
# A stored document cannot hold lone surrogates; the tests of `safe_text` have them.
HOSTILE: Final = (
    MARKUP,
    "\x1b[31mred\x1b[0m \x00 \x07",
    "\u202egnirts\u202c \u2066 \u200b",
    "word" * 75,
    "../../etc/passwd%2e%2e%2f\\..\\x",
    "javascript:alert(1)",
    "__proto__",
)


def a_set(number: int) -> SetRecord:
    year, month = divmod(number, 12)
    pins = {
        "torch": f"2.{number}.0",
        "transformers": f"5.{number}.0",
        "peft": f"0.{number}.0",
        "bitsandbytes": f"0.{number}.0",
        "accelerate": f"1.{number}.0",
        "trl": f"1.{number}.0",
    }
    return SetRecord(
        key=f"{2030 + year}-{month + 1:02}",
        python="3.11",
        pins=pins,
        as_of=f"{2030 + year}-{month + 1:02}-15",
        why="made up",
    )


def an_outcome(case: str, on: str, number: int, *, text: str = "") -> Outcome:
    """Return a cell; every seventh is red with an error, and all have three checks."""
    red = number % RED_SHARE == 0
    checks = tuple(CheckRecord(name=f"check {each}{text}", value=0.1, op="<=", bound=0.5, ok=True) for each in range(3))
    return Outcome(
        set=on,
        case=case,
        group=f"group {number % 40}{text}",
        why=f"made up {text}".strip(),
        options={"flow": "train", "method": "lora", "quant": "none", "strategy": "ddp"},
        verdict=Verdict.FAIL if red else Verdict.PASS,
        reason=f"ValueError: made up {text}" if red else "",
        phase=Phase.FORWARD if red else None,
        checks=checks,
        error=ErrorRecord(type="ValueError", message=f"made up {text}", traceback=f"Traceback {text}") if red else None,
        facts={"device": "cpu"},
        hardware="cpu: made up x 2",
        started=NOON,
        seconds=0.5,
    )


def write(folder: Path, outcomes: tuple[Outcome, ...], sets: tuple[SetRecord, ...]) -> None:
    """Write a folder of published results."""
    record = RunRecord(
        harness="0", code="0", started=NOON, device="cpu", request={}, planned=(), hardware="cpu: made up x 2"
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_results(results(record, sets, outcomes), folder, generated=NOON)


def write_many(folder: Path, *, cases: int, sets: int) -> None:
    """Write results with a cell for each case on each set."""
    columns = tuple(a_set(number) for number in range(sets))
    outcomes = tuple(
        an_outcome(f"train-made_up_{case}-ddp-fp32", column.key, case * sets + place)
        for case in range(cases)
        for place, column in enumerate(columns)
    )
    write(folder, outcomes, columns)
