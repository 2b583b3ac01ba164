"""GPUs are found in a question, with their number; the published results are of the GPUs that notes name."""

from __future__ import annotations

import re

import pytest

from reports.answers import knowledge
from reports.answers.support.hardware import GPUS, MEASURED, found_hardware


@pytest.mark.parametrize(
    ("text", "names", "count"),
    [
        ("on a t4", ["T4"], 0),
        ("8 * 3090", ["RTX 3090"], 8),
        ("4xa100 80gb", ["A100"], 4),
        ("dual rtx 4090 ti", ["RTX 4090"], 2),
        ("nvidia tesla v100-sxm2", ["V100"], 0),
        ("l40s or a10g", ["L40", "A10"], 0),
        ("2x h200", ["H200"], 2),
        ("version 2.6 with h100s", ["H100"], 0),
        ("t5 with 4090 steps", [], 0),
    ],
)
def test_gpus_are_found_with_their_number(text: str, names: list[str], count: int) -> None:
    found = found_hardware(text)
    assert ([each.name for each in found.gpus], found.count) == (names, count)


@pytest.mark.parametrize(
    ("text", "name", "device"),
    [
        ("amd mi300x", "AMD GPUs (ROCm)", "cuda"),
        ("apple m2 pro", "Apple GPUs (MPS)", "cpu"),
        ("a tpu v5e", "TPUs", "cpu"),
    ],
)
def test_other_hardware_is_not_measured(text: str, name: str, device: str) -> None:
    found = found_hardware(text)
    assert (found.not_measured, found.device) == ((name,), device)


def test_a_gpu_has_bf16_since_ampere() -> None:
    assert [each.name for each in GPUS if not each.has_bf16] == ["P100", "V100", "T4"]


def test_the_published_results_are_of_the_named_gpus() -> None:
    hardware = {outcome.hardware for outcome in knowledge.load(device="cuda").outcomes}
    assert {each for text in hardware for each in re.findall(r"NVIDIA (\w+)", text)} == set(MEASURED)
