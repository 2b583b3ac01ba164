"""The text of a crash injection shows everything that went wrong."""

from __future__ import annotations

from dataclasses import replace

from matrix.experiments.crash_injection import CrashResults, HarmedCell, InjectedCrash
from reports.render.text.crash_text import document, is_sound, lines

EXITS = InjectedCrash(
    crash="exits",
    what="A rank leaves with an exit code",
    case="train-lora-ddp-bf16",
    verdict="crash",
    reason="rank 1 ended without a report, exit code 3",
    failure="ended without a report",
    expected="crash",
    shows="exit code 3$",
    ended_s=3.04,
    settled_s=0.51,
    left="",
    limit_s=60.0,
)
GOOD = CrashResults(
    set="2026-11", crashes=(EXITS,), not_injected=(), wanted=20, after=20, healthy=20, harmed=(), lost=()
)
HARMED = HarmedCell(case="train-full-ddp-fp32", after="exits", verdict="fail", reason="no")


def text(found: CrashResults) -> str:
    return "\n".join(lines([found]))


def test_a_named_crash_shows_how_soon_it_was_over() -> None:
    assert "named  exits: A rank leaves with an exit code" in text(GOOD)
    assert "ranks ended 3.0 s after the last sign of life, GPUs free 0.5 s later" in text(GOOD)
    assert is_sound([GOOD])


def test_a_crash_that_was_not_named_shows_the_expected_reason() -> None:
    found = replace(GOOD, crashes=(replace(EXITS, verdict="hang"),))
    assert "WRONG  exits" in text(found)
    assert "expected: crash, and a reason that matches exit code 3$" in text(found)
    assert not is_sound([found])


def test_memory_left_on_a_gpu_is_shown() -> None:
    found = replace(GOOD, crashes=(replace(EXITS, left="GPU 0 has 600 MiB in use"),))
    assert "TOO LATE: GPU 0 has 600 MiB in use" in text(found)
    assert not is_sound([found])


def test_harmed_lost_and_missing_cells_are_shown() -> None:
    found = replace(GOOD, harmed=(HARMED,), lost=("a-with-exits",), not_injected=("killed",))
    assert "harmed: train-full-ddp-fp32, after exits: fail, no" in text(found)
    assert "lost, so their outcome is unknown: a-with-exits" in text(found)
    assert "not injected, since no clean cell is green: killed" in text(found)
    assert not is_sound([found])


def test_the_document_has_the_sums() -> None:
    found = document([GOOD, replace(GOOD, harmed=(HARMED,))])
    assert (found["crashes"], found["named"], found["harmed_cells"]) == (2, 2, 1)
    assert found["sets"][0]["is_sound"] is True
