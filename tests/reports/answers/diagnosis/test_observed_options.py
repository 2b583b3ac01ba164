"""A log shows the quantisation, the method and the strategy of its job, or leaves them open."""

from __future__ import annotations

import pytest

from reports.answers.diagnosis.observed_options import observe
from reports.answers.diagnosis.symptoms import Symptom


@pytest.mark.parametrize(
    ("line", "name", "values"),
    [
        ("BitsAndBytesConfig(load_in_4bit=True)", "quant", {"nf4", "fp4"}),
        ("module is a Linear8bitLt", "quant", {"int8"}),
        ("load_in_4bit: false", "quant", {"none"}),
        ("in torch/distributed/fsdp/_flat_param.py", "strategy", {"fsdp1"}),
        ("FSDPModule wraps it", "strategy", {"fsdp2"}),
        ("DistributedDataParallel, then FSDPModule", "strategy", {"ddp", "fsdp2"}),
        ("missing key lora_magnitude_vector of lora_A", "method", {"dora"}),
        ("File peft/tuners/adalora/layer.py, which calls peft/tuners/lora/layer.py", "method", {"adalora"}),
    ],
)
def test_a_line_shows_an_option(line: str, name: str, values: set[str]) -> None:
    assert observe(Symptom(text=line)).values[name] == values


def test_a_plugin_named_after_fsdp1_shows_no_strategy() -> None:
    assert observe(Symptom(text="FullyShardedDataParallelPlugin(fsdp_version=2)")).values == {}


def test_a_cell_shows_its_own_options() -> None:
    assert observe(Symptom(options={"quant": "int8"})).values == {"quant": {"int8"}}
