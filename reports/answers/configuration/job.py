"""Combines the configuration files of a training job into one point of the option space."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from cases.space.options import SHARDED, Options, applies
from matrix.errors import UserError
from reports.answers.configuration import configs
from reports.answers.configuration.dialects import (
    LAUNCHER,
    NEWEST,
    TRAINER,
    UnwritableError,
    first_key_in,
    matches,
    normalise,
    value_to_write,
)
from reports.answers.judgement.nearest_sets import public

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cases.space.options import Value
    from reports.answers.configuration.configs import Config
    from reports.answers.configuration.dialects import Rule

AMP: Final = "amp"
# Defaults for these options apply only from the file that enables FSDP.
FSDP_OPTIONS: Final = (
    "use_orig_params",
    "sync_module_states",
    "auto_wrap_policy",
    "reshard_after_forward",
    "cpu_ram_efficient_loading",
)
ON_CPU: Final = ("use_cpu", "no_cuda")
FSDP: Final = "fsdp_config"
HARMLESS: Final = (None, False, 0, 1, "", "auto", "sft", "pt", "bnb", "bitsandbytes")
# The option space has only a few of the values that these options can have.
OPEN_OPTIONS: Final = ("model", "world_size", "modules_to_save", "target_embeddings")
TRAINER_SETS_PEFT_POLICY: Final = Version("4.39")
NON_REENTRANT_BY_DEFAULT: Final = Version("5")
# Options to reset to their defaults, in this order, until the combination is legal.
RESET_ORDER: Final = (
    "cpu_ram_efficient_loading",
    "gradient_accumulation_steps",
    "device_mesh",
    "optim_implementation",
    "modules_to_save",
    "target_embeddings",
    "auto_wrap_policy",
    "model",
)


@dataclass(frozen=True)
class Source:
    """The file and keys that set an option. Both are empty for an assumed value; defaults of a tool have no keys."""

    config: Config | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """The training job that some files describe. ``options`` is None if no point of the option space represents it."""

    configs: tuple[Config, ...]
    options: Options | None
    values: Mapping[str, Value]
    sources: Mapping[str, Source]
    not_judged: tuple[str, ...]
    unread: Mapping[str, tuple[str, ...]]  # keys without a rule, by file name
    notes: tuple[str, ...]
    forcing: tuple[str, ...] = ()  # settings that no cell measures and that matter
    trainer: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Tell if a file requests the CPU. The default is GPUs."""
        return any(normalise(each.values.get(key)) is True for each in self.configs for key in ON_CPU)


def combine(files: Sequence[Config], versions: Mapping[str, str]) -> TrainingJob:
    """Return the job that some files describe together, with some installed versions.

    Raises:
        UserError: two files have the same role.
    """
    for role in (LAUNCHER, TRAINER):
        several = [each for each in files if each.dialect.role == role]
        if len(several) > 1:
            raise UserError(f"{several[0].path} and {several[1].path}: both are {role} files; give one of them")
    known = {name: public(version) for name, version in versions.items()}
    values, sources = collect_values(files, known)
    not_judged = tuple(text for each in files for text in unmeasured_settings(each, known))
    notes: list[str] = []
    options = build_options(values, known, notes) if "strategy" in values and "method" in values else None
    options = None if any(has_unmeasured_strategy(each) for each in files) else options
    return TrainingJob(
        configs=tuple(files),
        options=options,
        values=values,
        sources=sources,
        not_judged=tuple(dict.fromkeys((*not_judged, *notes))),
        unread={each.path.name: tuple(unread_keys(each)) for each in files},
        notes=tuple(assumptions(files, sources)),
    )


def collect_values(
    files: Sequence[Config], versions: Mapping[str, Version]
) -> tuple[dict[str, Value], dict[str, Source]]:
    """Return the value and the source of each option that a file sets or a tool has a default for.

    A trainer's file takes precedence over a launcher's, and a set value over a default.
    """
    in_order = sorted(files, key=lambda each: each.dialect.role == TRAINER)
    values: dict[str, Value] = {}
    sources: dict[str, Source] = {}
    for config in in_order:
        for rule in active_rules(config, versions):
            earlier = sources.get(rule.option)
            if earlier is not None and earlier.config is config:
                continue  # the first rule that matches counts
            if rule.option == AMP and rule.value == "off" and AMP in values:
                continue  # a trainer without mixed precision keeps the launcher's
            values[rule.option] = rule.value
            sources[rule.option] = Source(config, keys_of(rule, config))
    if "strategy" not in values and any(each.dialect.role == TRAINER for each in files):
        values["strategy"], sources["strategy"] = "single", Source()
    for config in reversed(in_order):
        enables_fsdp = sources.get("strategy", Source()).config is config
        for option, value in config.dialect.defaults(values, versions).items():
            if option not in values and (enables_fsdp or option not in FSDP_OPTIONS):
                values[option], sources[option] = value, Source(config)
    if "method" not in values and all(each.dialect.role == LAUNCHER for each in files):
        values["method"], sources["method"] = "lora", Source()
    return values, sources


def active_rules(config: Config, versions: Mapping[str, Version]) -> Iterable[Rule]:
    """Return the rules that hold for the versions and match the file."""
    return (rule for rule in config.dialect.rules if is_known(rule, versions) and matches(rule, config.values))


def is_known(rule: Rule, versions: Mapping[str, Version]) -> bool:
    def reaches(name: str, first: str) -> bool:
        return versions.get(name, NEWEST[name]) >= Version(first)

    return all(reaches(*each) for each in rule.since.items()) and not any(reaches(*each) for each in rule.until.items())


def keys_of(rule: Rule, config: Config) -> tuple[str, ...]:
    return tuple(key for path in rule.keys if (key := first_key_in(path, config.values)) is not None)


def unmeasured_settings(config: Config, versions: Mapping[str, Version]) -> Iterator[str]:
    """Yield the settings of a file that no cell measures."""
    for key, feature in config.dialect.not_judged:
        if is_enabled(config.values.get(key)):
            yield f"{feature} ({key} in {config.path.name})"
    known_keys = {key for rule in active_rules(config, versions) for key in keys_of(rule, config)}
    known_keys |= {
        key for name in OPEN_OPTIONS for rule in config.dialect.rules_for(name) for key in keys_of(rule, config)
    }
    for rule in config.dialect.rules:
        for key in keys_of(rule, config):
            if key not in known_keys and is_enabled(config.values[key]):
                yield f"{key}: {config.values[key]} (in {config.path.name})"


def is_enabled(value: Any) -> bool:
    """Tell if a value enables something, and is not only a disabled flag or a default."""
    return normalise(value) is True or (normalise(value) not in HARMLESS and value not in ([], {}))


def unread_keys(config: Config) -> Iterator[str]:
    """Yield the keys of a file that no rule of its dialect names, such as learning rates."""
    named = {path for rule in config.dialect.rules for key in rule.keys for path in key.split("|")}
    named |= {key for key, _ in config.dialect.not_judged} | set(ON_CPU)
    for key, value in config.values.items():
        within = any(other.startswith(f"{key}.") or key.startswith(f"{other}.") for other in named)
        if key not in named and not within and not isinstance(value, dict):
            yield key


def has_unmeasured_strategy(config: Config) -> bool:
    """Tell if a file requests a strategy that no cell measures."""
    kind = normalise(config.values.get("distributed_type"))
    deepspeed = config.values.get("deepspeed")
    return kind in ("deepspeed", "megatron_lm", "tpu", "xla") or normalise(deepspeed) not in (None, False)


def assumptions(files: Sequence[Config], sources: Mapping[str, Source]) -> Iterable[str]:
    if sources.get("strategy") == Source():
        yield "no launcher file: one process is assumed; give the accelerate file as well"
    if sources.get("method") == Source() and files:
        yield "no trainer file: LoRA is assumed; give the trainer's file as well"


def build_options(values: Mapping[str, Value], versions: Mapping[str, Version], dropped: list[str]) -> Options | None:
    """Return the legal options nearest to some values, and add each setting that is not in them to ``dropped``.

    Returns None if no legal options are near, as for full training of quantised weights.
    """
    chosen: dict[str, Any] = {name: value for name, value in values.items() if name != AMP}
    strategy = chosen["strategy"]
    transformers = versions.get("transformers", NEWEST["transformers"])
    if chosen.get("gradient_checkpointing") == "on":
        chosen["gradient_checkpointing"] = "non_reentrant" if transformers >= NON_REENTRANT_BY_DEFAULT else "reentrant"
    chosen |= amp_options(values.get(AMP, "off"), sharded=strategy in SHARDED, dropped=dropped)
    chosen |= trainer_overrides(chosen, transformers)
    chosen.setdefault("world_size", 2)
    chosen["world_size"] = 1 if strategy == "single" else chosen["world_size"]
    if chosen.get("device_mesh") == "hsdp" and strategy in SHARDED:
        chosen["world_size"] = 4
    elif chosen.get("gradient_accumulation_steps", 1) > 1:
        chosen["world_size"] = min(chosen["world_size"], 2)  # the cases' batch is too small for more
    options = nearest_legal(Options(**chosen), dropped)
    if options.why_illegal:
        dropped.append(options.why_illegal)
        return None
    return options


def amp_options(amp: Value, *, sharded: bool, dropped: list[str]) -> dict[str, Value]:
    """Return the options of automatic mixed precision.

    Under FSDP it means autocast and FSDP's own policy at once, which no case has: it is added to ``dropped``.
    """
    if not sharded:
        return {"autocast": amp}
    if amp != "off":
        dropped.append(f"mixed precision in {amp} under FSDP, which means autocast and FSDP's own policy at once")
    return {}


def trainer_overrides(chosen: Mapping[str, Any], transformers: Version) -> dict[str, Value]:
    """Return the options that the Trainer overrides: for an adapter under FSDP1, it sets PEFT's wrap policy."""
    replaces = chosen.get("front_end") in ("trainer", "sft") and transformers >= TRAINER_SETS_PEFT_POLICY
    return (
        {"auto_wrap_policy": "peft"}
        if replaces and chosen["method"] != "full" and chosen["strategy"] == "fsdp1"
        else {}
    )


def nearest_legal(options: Options, dropped: list[str]) -> Options:
    """Return the nearest legal options. Settings that do not apply get their defaults."""
    clean = replace(options, **{n: d for n, d in DEFAULTS.items() if not applies(n, options) and n != "world_size"})
    if clean.bnb_4bit_compute_dtype == clean.torch_dtype:
        clean = replace(clean, bnb_4bit_compute_dtype="load")
    if clean.strategy == "fsdp2" and clean.auto_wrap_policy in ("peft", "size"):
        clean = replace(clean, auto_wrap_policy="transformer")
    return without_illegal_settings(clean, dropped)


def without_illegal_settings(options: Options, dropped: list[str]) -> Options:
    """Reset options that make the combination illegal, one by one, and add them to ``dropped``."""
    for name in RESET_ORDER if options.why_illegal else ():
        reduced = replace(options, **{name: DEFAULTS[name]})
        if reduced.why_illegal != options.why_illegal:
            dropped.append(f"{name}={getattr(options, name)} ({options.why_illegal})")
            return without_illegal_settings(reduced, dropped)
    return options


DEFAULTS: Final[dict[str, Any]] = {name: Options.__dataclass_fields__[name].default for name in Options.__match_args__}


def patch(
    job: TrainingJob, wanted: Mapping[str, Value], versions: Mapping[str, str]
) -> tuple[TrainingJob, dict[Config, str]] | None:
    """Return the job with other values, and the new texts with the fewest changes; None if the files cannot express it.

    The returned job is read from the new texts, so it is certain to have the values.
    """
    patched = edit_and_reread(job, wanted, wanted, versions)
    if patched is None:
        return None
    needed = dict(wanted)
    for option in wanted:  # leave out values that hold by default
        fewer = {name: value for name, value in needed.items() if name != option}
        smaller = edit_and_reread(job, fewer, wanted, versions) if fewer else None
        if smaller is not None:
            needed, patched = fewer, smaller
    return patched


def edit_and_reread(
    job: TrainingJob, stated: Mapping[str, Value], wanted: Mapping[str, Value], versions: Mapping[str, str]
) -> tuple[TrainingJob, dict[Config, str]] | None:
    """Write ``stated`` values into the files, and return the job they then describe if it has the ``wanted`` values."""
    try:
        texts = {config: configs.edit(config, keys) for config, keys in changes_by_file(job, stated).items()}
    except UnwritableError:
        return None
    reread = combine([configs.parse(texts.get(each, each.text), each.path) for each in job.configs], versions)
    if reread.options is None or any(getattr(reread.options, name) != value for name, value in wanted.items()):
        return None
    return reread, {config: text for config, text in texts.items() if text != config.text}


def changes_by_file(job: TrainingJob, stated: Mapping[str, Value]) -> dict[Config, dict[str, Any]]:
    """Return the keys to change, by file, to give options new values. Options that no file can express are left out."""
    changes: dict[Config, dict[str, Any]] = {}
    for option, value in values_in_files(stated).items():
        config, keys = next(possible_edits(job, option, value), (None, {}))
        if config is not None:
            changes.setdefault(config, {}).update(keys)
    return changes


def values_in_files(wanted: Mapping[str, Value]) -> dict[str, Value]:
    """Return options as files express them, with one value for automatic mixed precision."""
    values = {
        name: value for name, value in wanted.items() if name not in ("autocast", "mixed_precision", "world_size")
    }
    amp = {value for name, value in wanted.items() if name in ("autocast", "mixed_precision")}
    if amp:
        values[AMP] = "bf16" if "bf16" in amp else "fp16" if "fp16" in amp else "off"
    return values


def possible_edits(job: TrainingJob, option: str, value: Value) -> Iterator[tuple[Config, dict[str, Any]]]:
    """Yield the edits that express a value: in the file with the old value first, then in a trainer's file."""
    source = job.sources.get(option, Source()).config
    in_order = sorted(job.configs, key=lambda each: (each is not source, each.dialect.role != TRAINER))
    for config in in_order:
        for rule in config.dialect.rules_for(option):
            if rule.value == value:
                try:
                    yield config, keys_to_write(rule, config)
                except UnwritableError:
                    continue


def keys_to_write(rule: Rule, config: Config) -> dict[str, Any]:
    """Return the keys of a rule that a file must change to match it, with their new values.

    Raises:
        UnwritableError: a value is read-only, or the key belongs to FSDP settings that the file does not have.
    """
    changed: dict[str, Any] = {}
    for path, expected in rule.keys.items():
        if not matches(replace(rule, keys={path: expected}), config.values):
            key = first_key_in(path, config.values) or path.partition("|")[0]
            if key.startswith(f"{FSDP}.") and FSDP not in config.values:
                raise UnwritableError(key)
            changed[key] = value_to_write(expected)
    return changed
