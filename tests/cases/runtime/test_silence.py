"""How long a rank may be silent."""

from __future__ import annotations

import pytest

from cases.runtime import silence
from cases.space.options import Options
from cases.suite import CASES


def test_a_hang_on_gpus_is_noticed_within_twenty_seconds() -> None:
    assert silence.of(Options(), "cuda").silence_s <= 15


def test_on_a_cpu_a_rank_has_a_minute() -> None:
    assert silence.of(Options(), "cpu") == silence.Patience(60.0)


def test_who_compiles_has_longer_and_it_is_said_why() -> None:
    allowed = silence.of(Options(torch_compile=True), "cuda")
    assert allowed.silence_s > silence.SILENCE_S["cuda"]
    assert "torch.compile" in allowed.why


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nobody_has_less_than_is_usual(device: str) -> None:
    assert min(silence.of(case.options, device).silence_s for case in CASES.values()) == silence.SILENCE_S[device]


def test_every_rule_concerns_a_case() -> None:
    assert all(any(rule.concerns(case.options) for case in CASES.values()) for rule in silence.RULES)
