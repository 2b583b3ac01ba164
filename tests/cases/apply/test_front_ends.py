from __future__ import annotations

from typing import get_args

import pytest

from cases.apply import front_ends
from cases.space.options import FrontEnd, Options
from cases.space.place import Place


def test_every_front_end_has_its_acts() -> None:
    assert set(front_ends.FRONT_ENDS) == set(get_args(FrontEnd))


def test_one_process_is_started_without_a_launcher() -> None:
    assert front_ends.launched(Place(0, 1, "cpu")) == {"ACCELERATE_USE_CPU": "true"}


def test_a_rank_knows_its_number_and_how_many_there_are() -> None:
    found = front_ends.launched(Place(1, 2, "cpu"))
    assert (found["RANK"], found["WORLD_SIZE"]) == ("1", "2")


def test_a_gpu_is_not_told_to_use_the_cpu() -> None:
    assert "ACCELERATE_USE_CPU" not in front_ends.launched(Place(1, 2, 1))


def test_nothing_is_sharded_unasked() -> None:
    assert front_ends.sharding(Options().but(strategy="ddp")) == {}


def test_accelerate_is_told_which_fsdp() -> None:
    assert front_ends.sharding(Options().but(strategy="fsdp2"))["FSDP_VERSION"] == "2"


@pytest.mark.parametrize("name", front_ends.FRONT_ENDS)
def test_the_modules_of_a_front_end_have_every_act(name: str) -> None:
    training, saving = (front_ends.module(each) for each in vars(front_ends.FRONT_ENDS[name]).values())
    assert {"prepare", "steps"} <= vars(training).keys()
    assert {"save_model", "save_training", "load_training"} <= vars(saving).keys()
