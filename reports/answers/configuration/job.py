"""Combines the configuration files of a training job into one point of the option space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from cases.space.options import SHARDED, Options, applies
from matrix.errors import UserError
from reports.answers.checkup.nearest_sets import public
from reports.answers.configuration import configs
from reports.answers.configuration.dialects import (
    LAUNCHER,
    NEWEST,
    TRAINER,
    UnwritableError,
    matches,
    plain,
    present,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cases.space.options import Value
    from reports.answers.configuration.configs import Config
    from reports.answers.configuration.dialects import Rule

AMP: Final = "amp"
# What only the file implies that asks for FSDP.
OF_FSDP: Final = (
    "use_orig_params",
    "sync_module_states",
    "auto_wrap_policy",
    "reshard_after_forward",
    "cpu_ram_efficient_loading",
)
ON_CPU: Final = ("use_cpu", "no_cuda")
FSDP: Final = "fsdp_config"
HARMLESS: Final = (None, False, 0, 1, "", "auto", "sft", "pt", "bnb", "bitsandbytes")
READ_IN_PART: Final = (
    "model",
    "world_size",
    "modules_to_save",
    "target_embeddings",
)  # of their many values a few mean something here
WRAPS_ADAPTERS: Final = Version("4.39")
DOES_NOT_RE_ENTER: Final = Version("5")
# What is left out of a point that the option space does not have, in this order, until it has it.
LEFT_OUT: Final = (
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
    """Where an option's value comes from: the keys of a file, or nobody said it."""

    config: Config | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """``options`` is None where the files ask for what the option space does not have at its core."""

    configs: tuple[Config, ...]
    options: Options | None
    values: Mapping[str, Value]
    sources: Mapping[str, Source]
    not_judged: tuple[str, ...]
    unread: Mapping[str, tuple[str, ...]]  # keys, by file
    notes: tuple[str, ...]

    @property
    def on_cpu(self) -> bool:
        """Whether a file says so; jobs are for GPUs unless they say otherwise."""
        return any(plain(each.values.get(key)) is True for each in self.configs for key in ON_CPU)


def of(found: Sequence[Config], versions: Mapping[str, str]) -> TrainingJob:
    """The job that some files describe together.

    Raises:
        UserError: two of them are of one kind.
    """
    for role in (LAUNCHER, TRAINER):
        several = [each for each in found if each.dialect.role == role]
        if len(several) > 1:
            raise UserError(f"{several[0].path} and {several[1].path}: both are a {role}'s file; give those of one job")
    known = {name: public(version) for name, version in versions.items()}
    values, sources = together(found, known)
    not_judged = tuple(text for each in found for text in beyond(each, known))
    notes: list[str] = []
    options = point(values, known, notes) if "strategy" in values and "method" in values else None
    options = None if any(foreign(each) for each in found) else options
    return TrainingJob(
        configs=tuple(found),
        options=options,
        values=values,
        sources=sources,
        not_judged=tuple(dict.fromkeys((*not_judged, *notes))),
        unread={each.path.name: tuple(unread(each)) for each in found},
        notes=tuple(assumptions(found, sources)),
    )


def together(found: Sequence[Config], versions: Mapping[str, Version]) -> tuple[dict[str, Value], dict[str, Source]]:
    """Every option that is said or implied. A trainer's file goes before a launcher's, words before what is implied."""
    in_order = sorted(found, key=lambda each: each.dialect.role == TRAINER)
    values: dict[str, Value] = {}
    sources: dict[str, Source] = {}
    for config in in_order:
        for rule in rules(config, versions):
            earlier = sources.get(rule.option)
            if earlier is not None and earlier.config is config:
                continue  # the first row that matches counts
            if rule.option == AMP and rule.value == "off" and AMP in values:
                continue  # a trainer that asks for nothing gets what the launcher was told
            values[rule.option] = rule.value
            sources[rule.option] = Source(config, keys_of(rule, config))
    if "strategy" not in values and any(each.dialect.role == TRAINER for each in found):
        values["strategy"], sources["strategy"] = "single", Source()
    for config in reversed(in_order):
        shards = sources.get("strategy", Source()).config is config
        for option, value in config.dialect.implied(values, versions).items():
            if option not in values and (shards or option not in OF_FSDP):
                values[option], sources[option] = value, Source(config)
    if "method" not in values and all(each.dialect.role == LAUNCHER for each in found):
        values["method"], sources["method"] = "lora", Source()
    return values, sources


def rules(config: Config, versions: Mapping[str, Version]) -> Iterable[Rule]:
    """The rows that match, of keys that the installed versions know."""
    return (rule for rule in config.dialect.rules if is_known(rule, versions) and matches(rule, config.values))


def is_known(rule: Rule, versions: Mapping[str, Version]) -> bool:
    def has(name: str, first: str) -> bool:
        return versions.get(name, NEWEST[name]) >= Version(first)

    return all(has(*each) for each in rule.since.items()) and not any(has(*each) for each in rule.until.items())


def keys_of(rule: Rule, config: Config) -> tuple[str, ...]:
    return tuple(key for path in rule.keys if (key := present(path, config.values)) is not None)


def beyond(config: Config, versions: Mapping[str, Version]) -> Iterator[str]:
    """What a file asks for and no cell has."""
    for key, what in config.dialect.not_judged:
        if asks(config.values.get(key)):
            yield f"{what} ({key} in {config.path.name})"
    understood = {key for rule in rules(config, versions) for key in keys_of(rule, config)}
    understood |= {key for name in READ_IN_PART for rule in config.dialect.of(name) for key in keys_of(rule, config)}
    for rule in config.dialect.rules:
        for key in keys_of(rule, config):
            if key not in understood and asks(config.values[key]):
                yield f"{key}: {config.values[key]} (in {config.path.name})"


def asks(value: Any) -> bool:
    """Whether a value is more than a switch that is off."""
    return plain(value) is True or (plain(value) not in HARMLESS and value not in ([], {}))


def unread(config: Config) -> Iterator[str]:
    """The keys of a file that its dialect's rows do not name: learning rates, and what is not known here."""
    named = {path for rule in config.dialect.rules for key in rule.keys for path in key.split("|")}
    named |= {key for key, _ in config.dialect.not_judged} | set(ON_CPU)
    for key, value in config.values.items():
        within = any(other.startswith(f"{key}.") or key.startswith(f"{other}.") for other in named)
        if key not in named and not within and not isinstance(value, dict):
            yield key


def foreign(config: Config) -> bool:
    """Whether a file asks for a strategy of which nothing was measured."""
    kind = plain(config.values.get("distributed_type"))
    deep = config.values.get("deepspeed")
    return kind in ("deepspeed", "megatron_lm", "tpu", "xla") or plain(deep) not in (None, False)


def assumptions(found: Sequence[Config], sources: Mapping[str, Source]) -> Iterable[str]:
    if sources.get("strategy") == Source():
        yield "no file says how the job is launched: one process is assumed; give its accelerate file as well"
    if sources.get("method") == Source() and found:
        yield "no file says what is trained: LoRA is assumed; give the trainer's file as well"


def point(values: Mapping[str, Value], versions: Mapping[str, Version], left_out: list[str]) -> Options | None:
    """The options that values by name add up to; what no point has together is left out, and named.

    None is a job that nobody can mean, such as training quantised weights.
    """
    chosen: dict[str, Any] = {name: value for name, value in values.items() if name != AMP}
    strategy = chosen["strategy"]
    transformers = versions.get("transformers", NEWEST["transformers"])
    if chosen.get("gradient_checkpointing") == "on":
        chosen["gradient_checkpointing"] = "non_reentrant" if transformers >= DOES_NOT_RE_ENTER else "reentrant"
    chosen |= halves(values.get(AMP, "off"), sharded=strategy in SHARDED, left_out=left_out)
    chosen |= by_the_trainer(chosen, transformers)
    chosen.setdefault("world_size", 2)
    chosen["world_size"] = 1 if strategy == "single" else chosen["world_size"]
    if chosen.get("device_mesh") == "hsdp" and strategy in SHARDED:
        chosen["world_size"] = 4
    elif chosen.get("gradient_accumulation_steps", 1) > 1:
        chosen["world_size"] = min(chosen["world_size"], 2)  # the cases' batch is too small for more
    found = legal(Options(**chosen), left_out)
    if found.why_illegal:
        left_out.append(found.why_illegal)
        return None
    return found


def halves(amp: Value, *, sharded: bool, left_out: list[str]) -> dict[str, Value]:
    """Automatic mixed precision is autocast; of sharded weights FSDP's own policy as well, and no case has both."""
    if not sharded:
        return {"autocast": amp}
    if amp != "off":
        left_out.append(f"mixed precision in {amp} under FSDP, which is autocast and FSDP's own policy at once")
    return {}


def by_the_trainer(chosen: Mapping[str, Any], transformers: Version) -> dict[str, Value]:
    """What the Trainer does to FSDP1 for an adapter: it puts PEFT's wrap policy in the place of any other."""
    replaces = chosen.get("front_end") in ("trainer", "sft") and transformers >= WRAPS_ADAPTERS
    return (
        {"auto_wrap_policy": "peft"}
        if replaces and chosen["method"] != "full" and chosen["strategy"] == "fsdp1"
        else {}
    )


def legal(options: Options, left_out: list[str]) -> Options:
    """The nearest point that the option space has: settings that do not apply are as if they were not said."""
    clean = replace(options, **{n: d for n, d in DEFAULTS.items() if not applies(n, options) and n != "world_size"})
    if clean.bnb_4bit_compute_dtype == clean.torch_dtype:
        clean = replace(clean, bnb_4bit_compute_dtype="load")
    if clean.strategy == "fsdp2" and clean.auto_wrap_policy in ("peft", "size"):
        clean = replace(clean, auto_wrap_policy="transformer")
    return without_one(clean, left_out)


def without_one(options: Options, left_out: list[str]) -> Options:
    """The point without settings that make it illegal."""
    for name in LEFT_OUT if options.why_illegal else ():
        reduced = replace(options, **{name: DEFAULTS[name]})
        if reduced.why_illegal != options.why_illegal:
            left_out.append(f"{name}={getattr(options, name)} ({options.why_illegal})")
            return without_one(reduced, left_out)
    return options


DEFAULTS: Final[dict[str, Any]] = {name: Options.__dataclass_fields__[name].default for name in Options.__match_args__}


def patched(
    job: TrainingJob, wanted: Mapping[str, Value], versions: Mapping[str, str]
) -> tuple[TrainingJob, dict[Config, str]] | None:
    """The job with other values, and the fewest texts and keys that say so; None where these files cannot say it.

    The texts are read again: what they then mean is what is returned, and it has the values.
    """
    found = reread_with(job, wanted, wanted, versions)
    if found is None:
        return None
    needed = dict(wanted)
    for option in wanted:  # what goes without saying is not said
        fewer = {name: value for name, value in needed.items() if name != option}
        less = reread_with(job, fewer, wanted, versions) if fewer else None
        if less is not None:
            needed, found = fewer, less
    return found


def reread_with(
    job: TrainingJob, stated: Mapping[str, Value], wanted: Mapping[str, Value], versions: Mapping[str, str]
) -> tuple[TrainingJob, dict[Config, str]] | None:
    """The job with some values written into its files, if it then has those that are wanted."""
    try:
        texts = {config: configs.edited(config, keys) for config, keys in rewritten(job, stated).items()}
    except UnwritableError:
        return None
    again = of([configs.parsed(texts.get(each, each.text), each.path) for each in job.configs], versions)
    if again.options is None or any(getattr(again.options, name) != value for name, value in wanted.items()):
        return None
    return again, {config: text for config, text in texts.items() if text != config.text}


def rewritten(job: TrainingJob, stated: Mapping[str, Value]) -> dict[Config, dict[str, Any]]:
    """The keys to change, by file, so that options have other values; of an option that no file can say, none."""
    changes: dict[Config, dict[str, Any]] = {}
    for option, value in spoken(stated).items():
        config, keys = next(edits(job, option, value), (None, {}))
        if config is not None:
            changes.setdefault(config, {}).update(keys)
    return changes


def spoken(wanted: Mapping[str, Value]) -> dict[str, Value]:
    """Options as files say them."""
    both = {name: value for name, value in wanted.items() if name not in ("autocast", "mixed_precision", "world_size")}
    amp = {value for name, value in wanted.items() if name in ("autocast", "mixed_precision")}
    if amp:
        both[AMP] = "bf16" if "bf16" in amp else "fp16" if "fp16" in amp else "off"
    return both


def edits(job: TrainingJob, option: str, value: Value) -> Iterator[tuple[Config, dict[str, Any]]]:
    """Ways to say a value: in the file that said the old one first, then in a trainer's, then in a launcher's."""
    source = job.sources.get(option, Source()).config
    in_order = sorted(job.configs, key=lambda each: (each is not source, each.dialect.role != TRAINER))
    for config in in_order:
        for rule in config.dialect.of(option):
            if rule.value == value:
                try:
                    yield config, keys_to_write(rule, config)
                except UnwritableError:
                    continue


def keys_to_write(rule: Rule, config: Config) -> dict[str, Any]:
    """Of a row's keys those that a file says otherwise; a key that is not there and may be is left so.

    Raises:
        UnwritableError: a value can be read only, or would shard what the file does not shard.
    """
    changed: dict[str, Any] = {}
    for path, expected in rule.keys.items():
        if not matches(replace(rule, keys={path: expected}), config.values):
            key = present(path, config.values) or path.partition("|")[0]
            if key.startswith(f"{FSDP}.") and FSDP not in config.values:
                raise UnwritableError(key)
            changed[key] = written(expected)
    return changed
