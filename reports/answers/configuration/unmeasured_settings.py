"""Lists the settings of a training job that no cell measures, and the keys that no rule reads."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from reports.answers.configuration.dialects import (
    ENGINE,
    TRAINER,
    ModelName,
    admits,
    is_enabled,
    matches,
    normalise,
)
from reports.answers.configuration.dialects.rule_search import active_rules, keys_of
from reports.answers.configuration.dialects.trainers import PRETRAINING, SFT
from reports.answers.configuration.role_settings import FSDP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.version import Version

    from cases.space.options import Value
    from reports.answers.configuration.configs import Config
    from reports.answers.configuration.role_settings import RoleSettings

ON_CPU: Final = ("use_cpu", "no_cuda")
# The option space has only a few of the values that these options can have.
OPEN_OPTIONS: Final = ("model", "world_size", "modules_to_save", "target_embeddings")
# Values of these options that no cell measures do not change what the other options do.
MINOR_OPTIONS: Final = (*OPEN_OPTIONS, "gradient_accumulation_steps", "clip_grad_norm", "find_unused_parameters")
DEEPSPEED: Final = "DeepSpeed"
LLAMA: Final = ModelName("llama", re.compile(r"llama-?4|vision|(?:11|90)b|llava|mllama|nemotron|moe"))
REMOTE_CODE: Final = "trust_remote_code"
# Words of a script's own options that decide how it trains, such as `--enable_fsdp`, `--use_lora` or `--bits`.
DECIDING: Final = frozenset(
    {
        *("fsdp", "fsdp2", "deepspeed", "zero", "zero1", "zero2", "zero3", "ddp", "megatron", "parallel", "tp", "pp"),
        *("lora", "qlora", "dora", "peft", "adapter", "quant", "quantize", "quantization", "quantized", "bits", "bit"),
        *("int8", "int4", "4bit", "8bit", "nf4", "fp4", "fp8", "gptq", "awq", "unsloth", "liger", "offload", "compile"),
        *("fp16", "bf16", "half", "amp", "packing", "flash", "freeze", "frozen"),
    }
)
# Numbers and names that shape an adapter or a unit of FSDP, but do not choose a method or a strategy.
SHAPING: Final = frozenset(
    {
        *("r", "rank", "alpha", "dropout", "bias", "target", "targets", "modules", "weights", "path", "name", "dir"),
        *("type", "layer", "wrap", "cls", "min", "num", "params", "timeout", "folder", "port", "batch", "seed"),
    }
)
SCRIPT: Final = ".py"
PATHS: Final = (".json", ".yaml", ".yml")


def forcing_settings(
    found: Sequence[RoleSettings], values: Mapping[str, Value], versions: Mapping[str, Version], trainer: str
) -> Iterator[str]:
    """Yield what makes results without it say nothing about the job: unmeasured features, files that are missing."""
    if trainer not in ("", SFT, PRETRAINING):
        names = [each.config.path.name for each in found if each.config.dialect.role == TRAINER]
        yield f"{trainer} training ({', '.join(names)})"
    for layer in found:
        yield from (text for text, forces in settings(layer, versions) if forces)
        yield from layer.config.dialect.patches(layer.config.values, values)
        yield from (f"{word} ({layer.config.path.name} does not set this variable)" for word in layer.config.unresolved)
        yield from own_options(layer)
        yield from remote_code(layer)
    for name, path in missing_files(found, keys=("fsdp_config",)):  # DeepSpeed makes a job unknown in any case
        yield f"the settings in {path}, to which {name} refers"


def own_options(layer: RoleSettings) -> Iterator[str]:
    """Yield the options of a script's own that seem to decide about its method, sharding or precision."""
    config = layer.config
    if config.dialect.role != TRAINER or not config.program.endswith(SCRIPT):
        return
    for key in unread_keys(config):
        parts = set(re.split(r"[^a-z0-9]+", key.lower()))
        if parts & DECIDING and not parts & SHAPING and is_enabled(config.values[key]):
            yield f"{key}, an option of the script's own ({named(layer, key)})"


def remote_code(layer: RoleSettings) -> Iterator[str]:
    """Yield the code of a model's repository, if a file admits it and the model is of no measured architecture."""
    if is_enabled(layer.config.values.get(REMOTE_CODE)):
        yield from (f"the model's own code for {each}" for each in unknown_architectures(layer))


def other_settings(found: Sequence[RoleSettings], versions: Mapping[str, Version]) -> Iterator[str]:
    """Yield settings that no cell measures, but that do not change what the others do."""
    for layer in found:
        yield from (text for text, forces in settings(layer, versions) if not forces)
        yield from unknown_architectures(layer)
        if layer.config.program.endswith(SCRIPT) and layer.config.dialect.role == TRAINER:
            yield f"the code of {layer.config.program} (in {layer.parts[0][0].path.name})"


def settings(layer: RoleSettings, versions: Mapping[str, Version]) -> Iterator[tuple[str, bool]]:
    """Yield each unmeasured setting of a role, and whether it makes results without it irrelevant."""
    config = layer.config
    features: set[str] = set()
    for row in config.dialect.not_judged:
        if row.feature not in features and admits(row.when, config.values.get(row.key)):
            features.add(row.feature)
            yield f"{row.feature.format(value=words(config.values[row.key]))} ({named(layer, row.key)})", row.forces
    if config.dialect.role == ENGINE and "zero_optimization.stage" not in config.values and not config.dialect.rules:
        yield f"{DEEPSPEED} ({config.path.name})", True
    known = {key for rule in active_rules(config, versions) for key in keys_of(rule, config)}
    rows = (row for row in config.dialect.not_judged if row.forces and admits(row.when, config.values.get(row.key)))
    known |= {row.key for row in rows}
    for key, options in options_by_key(config).items():
        if key not in known and is_enabled(config.values[key]) and not options & set(OPEN_OPTIONS):
            name = layer.origin([key])[0].path.name
            yield f"{key}: {config.values[key]} (in {name})", decides(config, key, options, versions)


def options_by_key(config: Config) -> dict[str, set[str]]:
    """Return the options that each key of a file can set."""
    found: dict[str, set[str]] = {}
    for rule in config.dialect.rules:
        for key in keys_of(rule, config):
            found.setdefault(key, set()).add(rule.option)
    return found


def decides(config: Config, key: str, options: set[str], versions: Mapping[str, Version]) -> bool:
    """Tell if the value of a key, which no rule matched, decides about one of its options.

    It does not if other keys disable it, such as the type of a quantisation that is off, or if the installed versions
    do not read it.
    """
    rules = config.dialect.rules
    is_set = options <= {rule.option for rule in active_rules(config, versions)}
    has_meaning = any(
        admits(expected, config.values[key])
        for rule in rules
        for path, expected in rule.keys.items()
        if key in path.split("|")
    )
    of_other_versions = any(key in keys_of(rule, config) and matches(rule, config.values) for rule in rules)
    of_fsdp_only = key.startswith(FSDP_PREFIX) and options == {"strategy"}
    minor = options <= set(MINOR_OPTIONS)
    return not (minor or (is_set and has_meaning) or of_other_versions or of_fsdp_only)


def unknown_architectures(layer: RoleSettings) -> Iterator[str]:
    """Yield the model of a file if its name is not that of a measured architecture."""
    config = layer.config
    rules = tuple(config.dialect.rules_for("model"))
    for key in dict.fromkeys(key for rule in rules for key in rule.keys):
        name = config.values.get(key)
        if name and not LLAMA.admits(name) and not any(matches(rule, config.values) for rule in rules):
            yield f"the architecture of {name} ({named(layer, key)})"


def words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def named(layer: RoleSettings, key: str) -> str:
    file, keys = layer.origin([key])
    return f"{keys[0] if keys else key} in {file.path.name}"


def missing_files(found: Sequence[RoleSettings], keys: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield each file that another one refers to and that was not given, after the name of the other one.

    ``keys`` are the keys to search for paths, by default all that can have one.
    """
    given = {part.path.name for layer in found for part, _ in layer.parts}
    for layer in found:
        config = layer.config
        values = [config.values.get(key) for key in keys or config.dialect.references]
        for value in dict.fromkeys([*config.mentioned, *(each for each in values if is_path(each))]):
            if PurePath(str(value)).name not in given:
                yield layer.parts[0][0].path.name, str(value)


def is_path(value: Any) -> bool:
    return isinstance(value, str) and value.strip().endswith(PATHS)


def unread_keys(config: Config) -> Iterator[str]:
    """Yield the keys of a file that no rule of its dialect names, such as learning rates."""
    names = {path for rule in config.dialect.rules for key in rule.keys for path in key.split("|")}
    names |= {row.key for row in config.dialect.not_judged} | set(ON_CPU) | set(config.dialect.references)
    for key, value in config.values.items():
        within = any(other.startswith(f"{key}.") or key.startswith(f"{other}.") for other in names)
        if key not in names and not within and not isinstance(value, dict):
            yield key


def has_unmeasured_strategy(config: Config) -> bool:
    """Tell if a file requests a strategy that no cell measures."""
    kind = normalise(config.values.get("distributed_type"))
    engine = config.values.get("dist_config.name")
    deepspeed = config.values.get("deepspeed")
    return (
        kind in ("deepspeed", "megatron_lm", "tpu", "xla")
        or normalise(deepspeed) not in (None, False)
        or engine in ("deepspeed", "fsdpturbo")
        or uses_deepspeed_engine(config)
    )


def uses_deepspeed_engine(config: Config) -> bool:
    return config.dialect.role == ENGINE and not config.dialect.rules
