from __future__ import annotations

from typing import get_args

import pytest

from cases.flows import stages
from cases.space.options import Flow, Options


def test_every_flow_has_its_stages() -> None:
    assert set(stages.FLOWS) == set(get_args(Flow))


@pytest.mark.parametrize("flow", stages.FLOWS)
def test_every_stage_is_a_function(flow: str) -> None:
    assert all(callable(stages.function(flow, number)) for number in range(len(stages.FLOWS[flow])))


def test_a_case_that_another_set_began_continues_with_the_second_stage() -> None:
    options = Options().but(flow="portability")
    assert [number for number, _ in stages.numbered_stages(options, continues=True)] == [1]
