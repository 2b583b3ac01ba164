from __future__ import annotations

from typing import get_args

import pytest

from cases.apply import front_ends
from cases.space.options import FrontEnd, Options
from cases.space.place import Place


def test_every_front_end_has_an_implementation() -> None:
    assert set(front_ends.FRONT_ENDS) == set(get_args(FrontEnd))


def test_one_process_gets_no_launcher_variables() -> None:
    assert front_ends.launched(Place(0, 1, "cpu")) == {"ACCELERATE_USE_CPU": "true"}


def test_launcher_variables_hold_rank_and_world_size() -> None:
    found = front_ends.launched(Place(1, 2, "cpu"))
    assert (found["RANK"], found["WORLD_SIZE"]) == ("1", "2")


def test_a_gpu_rank_gets_no_cpu_variable() -> None:
    assert "ACCELERATE_USE_CPU" not in front_ends.launched(Place(1, 2, 1))


def test_other_strategies_set_no_fsdp_variables() -> None:
    assert front_ends.sharding(Options().but(strategy="ddp")) == {}


def test_accelerate_gets_the_version_of_fsdp() -> None:
    assert front_ends.sharding(Options().but(strategy="fsdp2"))["FSDP_VERSION"] == "2"


@pytest.mark.parametrize("name", front_ends.FRONT_ENDS)
def test_the_modules_of_a_front_end_define_every_function(name: str) -> None:
    training, saving = (front_ends.module(each) for each in vars(front_ends.FRONT_ENDS[name]).values())
    assert {"prepare", "steps"} <= vars(training).keys()
    assert {"save_model", "save_training", "load_training"} <= vars(saving).keys()
