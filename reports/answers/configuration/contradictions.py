"""Refuses files that cannot belong to one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from matrix.errors import UserError
from reports.answers.configuration.dialects import ADAPTER, ENGINE, TRAINER, normalise
from reports.answers.configuration.dialects.rule_search import active_rules, keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from packaging.version import Version

    from cases.space.options import Value
    from reports.answers.configuration.role_settings import RoleSettings


class StatedValue(NamedTuple):
    """A value that a file states, and the name of the file."""

    value: Value
    file: str


def refuse(found: Sequence[RoleSettings], versions: Mapping[str, Version]) -> None:
    """Refuse files that contradict each other.

    Raises:
        UserError: one file requests FSDP and another DeepSpeed, or an adapter is not the one that the trainer sets up.
    """
    sharding = next((name for each in found if (name := fsdp_file(each))), "")
    deepspeed = next((name for each in found if (name := deepspeed_file(each))), "")
    if sharding and deepspeed and sharding != deepspeed:
        raise UserError(f"{sharding} requests FSDP and {deepspeed} DeepSpeed; give the files of one job")
    methods = {each.config.dialect.role: stated_method(each, versions) for each in found}
    trainer, adapter = methods.get(TRAINER), methods.get(ADAPTER)
    if trainer and adapter and trainer.value != adapter.value:
        raise UserError(
            f"{adapter.file} describes method={adapter.value} and {trainer.file} method={trainer.value}; "
            "give the files of one job"
        )


def fsdp_file(layer: RoleSettings) -> str:
    requests = normalise(layer.config.values.get("distributed_type")) == "fsdp"
    return layer.config.path.name if requests else ""


def deepspeed_file(layer: RoleSettings) -> str:
    config = layer.config
    is_engine = config.dialect.role == ENGINE and not config.dialect.rules
    requests = normalise(config.values.get("deepspeed")) not in (None, False)
    return config.path.name if is_engine or requests else ""


def stated_method(layer: RoleSettings, versions: Mapping[str, Version]) -> StatedValue | None:
    """Return the method that the keys of a file state, not one that follows from the lack of keys."""
    for rule in active_rules(layer.config, versions):
        if rule.option == "method":
            return StatedValue(rule.value, layer.config.path.name) if keys_of(rule, layer.config) else None
    return None
