"""Silence timeouts of ranks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cases.runtime import process_tree, silence
from cases.runtime.process_tree import CoreTimes
from cases.space.options import Options
from cases.suite import CASES

if TYPE_CHECKING:
    from collections.abc import Callable

    Sampled = Callable[[dict[int, CoreTimes]], silence.HostLoad]


def test_a_hang_on_gpus_is_noticed_within_twenty_seconds() -> None:
    assert silence.timeout(Options(), "cuda").silence_s <= 15


def test_a_rank_on_the_cpu_has_a_minute() -> None:
    assert silence.timeout(Options(), "cpu") == silence.SilenceTimeout(60.0)


def test_a_case_that_compiles_has_a_longer_timeout_with_a_reason() -> None:
    timeout = silence.timeout(Options(torch_compile=True), "cuda")
    assert timeout.silence_s > silence.SILENCE_S["cuda"]
    assert "torch.compile" in timeout.why


def test_the_calls_that_compile_are_cases_with_the_longer_timeout() -> None:
    found = {name: silence.timeout(CASES[f"api-{name}"].options, "cpu").why for name in silence.COMPILING_CALLS}
    assert [name for name, why in found.items() if "torch.compile" not in why] == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_case_has_less_than_the_usual_timeout(device: str) -> None:
    assert min(silence.timeout(case.options, device).silence_s for case in CASES.values()) == silence.SILENCE_S[device]


def test_every_rule_applies_to_a_case() -> None:
    assert all(any(rule.applies(case.options) for case in CASES.values()) for rule in silence.RULES)


@pytest.mark.parametrize("case", ["api-sequences_by_method", "api-merge_half_boft"])
def test_a_case_with_boft_may_build_its_kernel(case: str) -> None:
    assert "BOFT" in silence.timeout(CASES[case].options, "cpu").why


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> Sampled:
    """The load after ten seconds in which the threads of a rank had these times, on a host with 40 runnable threads."""

    def after(times: dict[int, CoreTimes]) -> silence.HostLoad:
        monkeypatch.setattr(process_tree, "runnable_threads", lambda: 40)
        monkeypatch.setattr(os, "cpu_count", lambda: 4)
        monkeypatch.setattr(process_tree, "core_times", lambda _: times)
        load = silence.HostLoad()
        load.sample(10.0, [1])
        return load

    return after


def test_the_thread_that_waited_longest_for_a_core_counts(sampled: Sampled) -> None:
    load = sampled({1: CoreTimes(1.0, 3.0), 2: CoreTimes(2.0, 8.0)})
    assert load.starved_s == 8.0
    assert load.sample(11.0, [1]) == 0.0


def test_no_rank_is_starved_where_the_kernel_reports_no_times(
    sampled: Sampled, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = sampled({})
    monkeypatch.setattr(process_tree, "runnable_threads", lambda: 0)
    assert load.sample(20.0, [1]) == 0.0
    assert load.crowd(15.0) == 0.0


def test_a_crowd_counts_while_the_ranks_sleep(sampled: Sampled) -> None:
    assert sampled({1: CoreTimes(0.0, 0.0)}).crowd(0.0) == 10.0


def test_a_crowd_does_not_count_while_a_rank_runs(sampled: Sampled) -> None:
    assert sampled({1: CoreTimes(9.0, 0.0)}).crowd(0.0) == 0.0
