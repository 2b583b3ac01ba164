"""The place of a rank on each device: its GPU, the backend of its process group, and the GPUs that a cell needs."""

from __future__ import annotations

import pytest

from cases.runtime import silence
from cases.space import devices
from cases.space.place import Place


@pytest.mark.parametrize(
    ("device", "place", "backend"),
    [
        ("cpu", Place(1, 2, "cpu"), "gloo"),
        ("cuda", Place(1, 2, 1), "nccl"),
        ("cuda-gloo", Place(1, 2, 0, shares_gpu=True), "gloo"),
    ],
)
def test_second_of_two_ranks(device: str, place: Place, backend: str) -> None:
    assert Place.on(device, 1, 2) == place
    assert place.backend == backend


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 0), ("cuda", 4), ("cuda-gloo", 1)])
def test_gpus_of_a_cell_with_four_ranks(device: str, gpus: int) -> None:
    assert devices.gpus_of(device, 4) == gpus
    assert devices.uses_gpus(device) == bool(gpus)


def test_launchers_variables_choose_the_shared_gpu() -> None:
    assert [Place.on("cuda-gloo", rank, 2).local_rank for rank in range(2)] == [0, 0]
    assert [Place.on("cuda", rank, 2).local_rank for rank in range(2)] == [0, 1]


@pytest.mark.parametrize("device", devices.NAMES)
def test_every_device_has_a_silence_timeout(device: str) -> None:
    assert silence.usual(device).silence_s > 0
