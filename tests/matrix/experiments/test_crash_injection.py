"""Crashes are judged strictly, and the requested number of healthy cells follows each of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import Any

import pytest

from cases.injection.crash_suite import CASES as CRASHING
from cases.injection.crashes import CRASHES
from cases.space.verdict import RED, Verdict
from cases.suite import CASES
from matrix.errors import UserError
from matrix.experiments.crash_injection import CrashResults, of_set, run, sequence
from matrix.run.outcome import Outcome
from matrix.run.request import RunRequest

CRASHING_CASES = ("train-lora-ddp-bf16", "train-lora-fsdp2-bf16")
GREEN = [*[case for case in CASES.values() if case.ranks == 2][:25], *(CASES[name] for name in CRASHING_CASES)]
EXITS = "train-lora-ddp-bf16-with-exits"
REASON = "rank 1 ended without a report, exit code 3"


MOMENTS = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=2 * number) for number in count())


def an_outcome(case: str, verdict: str = "pass", **other: Any) -> Outcome:
    """An outcome that starts after the end of the previous one."""
    when = {"started": next(MOMENTS), "seconds": 1.0}
    fields: dict[str, Any] = {"group": "", "why": "", "options": {}, "verdict": Verdict(verdict), **when, **other}
    return Outcome(set="2026-11", case=case, **fields)


def results(*outcomes: Outcome, device: str = "cuda") -> CrashResults:
    return of_set("2026-11", [CRASHING[outcome.case] for outcome in outcomes], outcomes, device=device, wanted=1)


def exits(**other: Any) -> Outcome:
    metrics = {"aftermath_s": 3.5, "gpus_settle_s": 0.5}
    return an_outcome(EXITS, **{"verdict": "crash", "reason": REASON, "metrics": metrics, **other})


@pytest.mark.parametrize("crash", CRASHES.values(), ids=lambda crash: crash.name)
def test_a_crash_declares_its_description_verdict_and_reason(crash: Any) -> None:
    assert crash.what
    assert crash.verdict in RED
    assert set(crash.cases) <= set(CASES)
    assert all(re.compile(pattern) for pattern in crash.shows.values())


def test_crashes_cover_every_kind_of_broken_gpu_and_memory() -> None:
    shown = " ".join(pattern for crash in CRASHES.values() for pattern in crash.shows.values())
    kinds = ("illegal memory access", "device-side assert", "out of device memory", "out of host memory", "NCCL error")
    assert [name for name in kinds if name not in shown] == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_enough_healthy_cells_follow_every_crash(device: str) -> None:
    cells = sequence(device, GREEN, 20)
    behind = [sum(not each.injected for each in cells[number:]) for number, case in enumerate(cells) if case.injected]
    assert min(behind) >= 20


def test_a_healthy_cell_follows_every_crash_at_once() -> None:
    cells = sequence("cpu", GREEN, 5)
    assert {case.crash for case in cells if case.injected} == {d.name for d in CRASHES.values() if "cpu" in d.shows}
    assert all(not after.injected for before, after in pairwise(cells) if before.injected)
    assert all(after.crash == before.crash for before, after in pairwise(cells) if before.injected)


def test_no_cell_occurs_twice() -> None:
    cells = [case.id for case in sequence("cuda", GREEN, 60)]
    assert len(cells) == len(set(cells))


def test_a_crash_with_the_expected_reason_is_named_and_over_soon() -> None:
    (crash,) = results(exits()).crashes
    assert (crash.is_named, crash.is_over_soon) == (True, True)


@pytest.mark.parametrize("other", [{"verdict": "fail"}, {"reason": "rank 0 ended without a report, exit code 3"}])
def test_a_crash_with_another_verdict_or_rank_is_not_named(other: dict[str, Any]) -> None:
    (crash,) = results(exits(**other)).crashes
    assert not crash.is_named


@pytest.mark.parametrize(
    "other",
    [
        {"metrics": {"aftermath_s": 50.0, "gpus_settle_s": 11.0}},
        {"metrics": {}},
        {"facts": {"left_on_gpus": "GPU 0 has 600 MiB in use"}},
    ],
)
def test_a_crash_that_takes_over_a_minute_or_leaves_memory_is_not_over_soon(other: dict[str, Any]) -> None:
    (crash,) = results(exits(**other)).crashes
    assert not crash.is_over_soon


def test_only_cells_that_began_later_count_as_following() -> None:
    early, late = "train-full-ddp-fp32-after-exits", "train-lora-ddp-fp32-adamw-after-exits"
    found = results(an_outcome(early), exits(), an_outcome(late))
    assert (found.healthy, found.after) == (2, 1)


def test_a_healthy_cell_that_is_red_was_harmed() -> None:
    found = results(exits(), an_outcome("train-full-ddp-fp32-after-exits", "fail", reason="no"))
    assert [(each.case, each.after) for each in found.harmed] == [("train-full-ddp-fp32", "exits")]
    assert not found.is_sound


def test_crashes_that_were_not_injected_and_lost_cells_are_listed() -> None:
    found = results(exits(), an_outcome("train-full-ddp-fp32-after-exits", "lost"))
    assert "killed" in found.not_injected
    assert found.lost == ("train-full-ddp-fp32-after-exits",)


def test_a_set_without_problems_is_sound() -> None:
    cells = sequence("cpu", GREEN, 2)
    outcomes = [
        an_outcome(
            case.id,
            CRASHES[case.crash].verdict.value if case.injected else "pass",
            reason=EXAMPLES[case.crash] if case.injected else "",
            metrics={"aftermath_s": 1.0},
        )
        for case in cells
    ]
    assert of_set("2026-11", cells, outcomes, device="cpu", wanted=2).is_sound
    assert not of_set("2026-11", cells, outcomes, device="cpu", wanted=3).is_sound


EXAMPLES = {
    "never_enters_a_collective": (
        "no sign of life for 60 s: rank 0 in all_reduce (distributed_c10d.py:2501); "
        "rank 1 in never_enters_a_collective (crashes.py:103)"
    ),
    "exits": REASON,
    "leaves_silently": "rank 1 ended without a report, exit code 0",
    "segmentation_fault": "rank 1 was ended by SIGSEGV",
    "aborts": "rank 1 was ended by SIGABRT",
    "killed": "rank 1 was ended by SIGKILL",
    "raises": "RuntimeError: injected",
    "host_out_of_memory": "out of host memory: the ranks held 8202 MiB of 8192 MiB",
}


def test_on_gpus_a_hang_has_to_name_the_collective() -> None:
    shows = CRASHES["never_enters_a_collective"].shows["cuda"]
    waits = "rank 0 in _pre_forward (distributed.py:1797); rank 1 in never_enters_a_collective (crashes.py:103)"
    desync = "rank 0 is in collective 7, broadcast of [64] Float; rank 1 never entered collective 7"
    assert re.search(shows, f"no sign of life for 15 s: {desync}: {waits}")
    assert not re.search(shows, f"no sign of life for 15 s: {waits}")


def test_a_request_for_no_healthy_cells_is_refused(tmp_path: Any) -> None:
    with pytest.raises(UserError, match="--after 0: expected a whole number above 0"):
        run(RunRequest(), after=0, directory=tmp_path, watcher=lambda _: pytest.fail("it ran"), say=print)


def test_an_earlier_selfcheck_is_not_overwritten(tmp_path: Any) -> None:
    (tmp_path / "clean").mkdir()
    with pytest.raises(UserError, match="holds an earlier selfcheck; choose another"):
        run(RunRequest(), after=1, directory=tmp_path, watcher=lambda _: pytest.fail("it ran"), say=print)
