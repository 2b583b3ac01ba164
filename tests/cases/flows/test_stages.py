from __future__ import annotations

from typing import get_args

import pytest

from cases.flows import stages
from cases.space.options import Flow, Options


def test_every_flow_has_its_stages() -> None:
    assert set(stages.FLOWS) == set(get_args(Flow))


@pytest.mark.parametrize("flow", stages.FLOWS)
def test_every_stage_is_a_function(flow: str) -> None:
    assert all(callable(stages.stage(flow, number)) for number in range(len(stages.FLOWS[flow])))


def test_a_case_that_another_set_began_continues_with_the_second_act() -> None:
    options = Options().but(flow="portability")
    assert [act for act, _ in stages.acts(options, continues=True)] == [1]
