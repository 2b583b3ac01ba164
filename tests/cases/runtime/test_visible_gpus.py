"""A job sees as many of its caller's GPUs as it has ranks."""

from __future__ import annotations

import pytest

from cases.runtime.visible_gpus import limit


@pytest.mark.parametrize(
    ("before", "count", "after"),
    [
        ({}, 1, "0"),
        ({}, 2, "0,1"),
        ({"CUDA_VISIBLE_DEVICES": "4,5,6"}, 2, "4,5"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8a1f,MIG-77c0"}, 1, "GPU-8a1f"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 2, "3"),
        ({"CUDA_VISIBLE_DEVICES": ""}, 1, ""),
    ],
)
def test_a_job_sees_the_first_gpus_of_its_caller(before: dict[str, str], count: int, after: str) -> None:
    limit(count, before)
    assert before["CUDA_VISIBLE_DEVICES"] == after
