"""The configuration of accelerate requests what a case requests of accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from cases.apply import front_ends
from cases.space.options import SHARDED, Options
from matrix.run.execute import Suite
from reports.answers.scripts import accelerate_config, strategy_calls

if TYPE_CHECKING:
    from typing import Any

BY_ACCELERATE = {
    case.id: case.options
    for case in Suite().cases.values()
    if case.options.front_end != "loop" and case.options.strategy in SHARDED
}
NAMES = {"FSDP_TRANSFORMER_CLS_TO_WRAP": "fsdp_transformer_layer_cls_to_wrap"}
OF_OTHER_VERSION = {
    "fsdp1": {"FSDP_RESHARD_AFTER_FORWARD"},
    "fsdp2": {"FSDP_SHARDING_STRATEGY", "FSDP_USE_ORIG_PARAMS", "FSDP_SYNC_MODULE_STATES"},
}


def configuration(options: Options) -> Any:
    return YAML(typ="safe", pure=True).load("\n".join(accelerate_config.lines(options)))


@pytest.mark.parametrize("name", BY_ACCELERATE)
def test_a_configuration_has_the_values_of_the_environment_of_its_case(name: str) -> None:
    """``accelerate launch`` sets these variables from a configuration; a case sets them itself."""
    options = BY_ACCELERATE[name]
    variables = front_ends.sharding(options)
    written = configuration(options)["fsdp_config"]
    for variable in variables.keys() - OF_OTHER_VERSION[options.strategy] - {"ACCELERATE_USE_FSDP"}:
        value = written[NAMES.get(variable, variable.lower())]
        assert variables[variable] == (str(value).lower() if isinstance(value, bool) else str(value)), variable


@pytest.mark.parametrize("value", ["full_shard", "shard_grad_op", "no_shard"])
def test_a_configuration_and_a_script_have_one_sharding_strategy(value: str) -> None:
    options = Options().but(strategy="fsdp1", sharding_strategy=value)
    written = configuration(options)["fsdp_config"]["fsdp_sharding_strategy"]
    assert repr(strategy_calls.fsdp1(options).named["sharding_strategy"]) == f"ShardingStrategy.{written}"


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "fsdp1", "auto_wrap_policy": "peft"},
        {"strategy": "fsdp2", "mixed_precision": "bf16_reduce_fp32"},
        {"strategy": "fsdp1", "device_mesh": "hsdp", "world_size": 4},
        {"strategy": "fsdp1", "flow": "save_reload", "state_dict_type": "full_dcp"},
        {"strategy": "single"},
    ],
)
def test_options_without_a_key_have_no_configuration(changes: dict[str, Any]) -> None:
    assert accelerate_config.lines(Options().but(**changes)) == []
