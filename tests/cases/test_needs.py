"""What a case needs is asked of the version and the machine, and its absence is a sentence."""

from __future__ import annotations

import pytest

from cases.needs import NEEDS, PROBES, Need, applicable
from cases.options import Options
from cases.profiles import EVERY

PLAIN = Options()


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.name)
def test_every_need_begins_a_sentence(need: Need) -> None:
    assert len(need.because.split()) > 2
    assert not need.because.endswith((".", ":"))


def test_no_two_needs_have_the_same_name() -> None:
    assert len(PROBES) == len(NEEDS)


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.name)
def test_every_need_is_some_cases(need: Need) -> None:
    assert [row.id for row in EVERY if need in applicable(row.options, "cpu")]


def test_a_probe_has_as_many_ranks_as_the_cases_that_need_it_or_fewer() -> None:
    assert all(need.ranks <= row.ranks for row in EVERY for need in applicable(row.options, "cpu"))


def test_the_plain_case_needs_nothing() -> None:
    assert applicable(PLAIN, "cpu") == []


def test_a_gpu_has_what_only_a_cpu_can_lack() -> None:
    assert [need.name for need in applicable(PLAIN.but(strategy="fsdp1", quant="nf4"), "cuda")] == []
