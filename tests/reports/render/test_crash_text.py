"""What was made of disasters is told so that nothing amiss can be passed over."""

from __future__ import annotations

from dataclasses import replace

from matrix.experiments.crash_injection import Harmed, Met, OfSet
from reports.render.crash_text import document, is_sound, lines

EXITS = Met(
    disaster="exits",
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
GOOD = OfSet(set="2026-11", met=(EXITS,), not_planted=(), wanted=20, after=20, healthy=20, harmed=(), lost=())
HARMED = Harmed(case="train-full-ddp-fp32", after="exits", verdict="fail", reason="no")


def text(found: OfSet) -> str:
    return "\n".join(lines([found]))


def test_a_disaster_that_was_named_says_how_soon_it_was_over() -> None:
    assert "named  exits: A rank leaves with an exit code" in text(GOOD)
    assert "ranks ended 3.0 s after the last sign of life, GPUs free 0.5 s later" in text(GOOD)
    assert is_sound([GOOD])


def test_one_that_was_not_says_what_was_expected() -> None:
    found = replace(GOOD, met=(replace(EXITS, verdict="hang"),))
    assert "WRONG  exits" in text(found)
    assert "expected: crash, and a reason that matches exit code 3$" in text(found)
    assert not is_sound([found])


def test_what_stayed_on_a_gpu_is_told() -> None:
    found = replace(GOOD, met=(replace(EXITS, left="GPU 0 has 600 MiB in use"),))
    assert "TOO LATE: GPU 0 has 600 MiB in use" in text(found)
    assert not is_sound([found])


def test_harmed_lost_and_missing_cells_are_told() -> None:
    found = replace(GOOD, harmed=(HARMED,), lost=("a-with-exits",), not_planted=("killed",))
    assert "harmed: train-full-ddp-fp32, after exits: fail, no" in text(found)
    assert "lost, so nothing is known of them: a-with-exits" in text(found)
    assert "not planted, since no clean cell is green: killed" in text(found)
    assert not is_sound([found])


def test_machines_get_the_sums() -> None:
    found = document([GOOD, replace(GOOD, harmed=(HARMED,))])
    assert (found["disasters"], found["named"], found["harmed_cells"]) == (2, 2, 1)
    assert found["sets"][0]["is_sound"] is True
