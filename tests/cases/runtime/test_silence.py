"""Silence timeouts of ranks."""

from __future__ import annotations

import pytest

from cases.runtime import silence
from cases.space.options import Options
from cases.suite import CASES


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
