"""The configuration of accelerate that requests the same as a case, in the keys and values of its dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cases.model import architectures
from cases.space.options import SHARDED
from reports.answers.configuration.dialects import UnwritableError, value_to_write
from reports.answers.configuration.dialects.accelerate import ACCELERATE, FSDP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.space.options import Options, Value

# Options with a key of their own under ``fsdp_config``.
WRAPPED: Final = ("auto_wrap_policy", "state_dict_type", "cpu_offload", "cpu_ram_efficient_loading")
FSDP1: Final = ("sharding_strategy", "use_orig_params", "sync_module_states")
FSDP2: Final = ("reshard_after_forward",)


def lines(options: Options) -> list[str]:
    """The lines of the file; empty if accelerate has no keys for these options."""
    if options.strategy == "single" or options.stated.get("device_mesh") == "hsdp":
        return []
    try:
        content = dict(settings(options))
    except UnwritableError:
        return []
    plain = {key: value for key, value in content.items() if not key.startswith(FSDP)}
    sharded = {key.removeprefix(FSDP): value for key, value in content.items() if key.startswith(FSDP)}
    return [*texts(plain), *(["fsdp_config:", *(f"  {line}" for line in texts(sharded))] if sharded else [])]


def settings(options: Options) -> Iterator[tuple[str, Any]]:
    """Keys and values of the file.

    Raises:
        UnwritableError: accelerate has no key for the value of an option.
    """
    yield "compute_environment", "LOCAL_MACHINE"
    yield from keys("strategy", options.strategy)
    yield from keys("amp", precision(options))
    yield "num_machines", 1
    yield "num_processes", options.world_size
    if options.strategy in SHARDED:
        for name in (*(FSDP1 if options.strategy == "fsdp1" else FSDP2), *WRAPPED):
            yield from keys(name, getattr(options, name))
        if options.auto_wrap_policy == "transformer":
            yield f"{FSDP}fsdp_transformer_layer_cls_to_wrap", ",".join(architectures.spec(options).block)


def precision(options: Options) -> Value:
    return options.autocast if options.mixed_precision == "off" else options.mixed_precision


def keys(option: str, value: Value) -> Iterator[tuple[str, Any]]:
    """The keys and values of accelerate that request a value of an option."""
    rule = next((rule for rule in ACCELERATE.rules_for(option) if rule.value == value), None)
    if rule is None:
        raise UnwritableError(f"{option}={value}")
    for key, expected in rule.keys.items():
        yield key, value_to_write(expected)


def texts(content: Mapping[str, Any]) -> Iterator[str]:
    for key, value in content.items():
        text = str(value).lower() if isinstance(value, bool) else "'no'" if value == "no" else value
        yield f"{key}: {text}"
