"""Combines the configuration files of a training job into one point of the option space."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from reports.answers.configuration import configs, contradictions, role_settings, unmeasured_settings
from reports.answers.configuration.dialects import (
    ADAPTER,
    LAUNCHER,
    TRAINER,
    UnwritableError,
    first_key_in,
    is_enabled,
    matches,
    normalise,
    value_to_write,
)
from reports.answers.configuration.dialects.rule_search import active_rules, keys_of
from reports.answers.configuration.dialects.trainers import ACTIVITIES
from reports.answers.configuration.option_point import AMP, build_options, nearest_legal
from reports.answers.configuration.role_settings import FSDP
from reports.answers.judgement.nearest_sets import public

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.version import Version

    from cases.space.options import Options, Value
    from reports.answers.configuration.configs import Config
    from reports.answers.configuration.dialects import Rule
    from reports.answers.configuration.role_settings import RoleSettings

__all__ = ["Source", "TrainingJob", "combine", "nearest_legal", "patch"]

# Defaults for these options apply only from the file that enables FSDP.
FSDP_OPTIONS: Final = (
    "use_orig_params",
    "sync_module_states",
    "auto_wrap_policy",
    "reshard_after_forward",
    "cpu_ram_efficient_loading",
)


@dataclass(frozen=True)
class Source:
    """The file and keys that set an option. Both are empty for an assumed value; defaults of a tool have no keys."""

    config: Config | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """The training job that some files describe.

    ``options`` is None if no point of the option space represents it. ``purpose`` is empty for training. Each text in
    ``forcing`` makes results without that feature irrelevant, so nothing is known about the job. ``not_judged`` lists
    what else was not looked at, what matters first. ``arguments`` are the trainer's, under the names of transformers
    and TRL.
    """

    configs: tuple[Config, ...]
    options: Options | None
    values: Mapping[str, Value]
    sources: Mapping[str, Source]
    not_judged: tuple[str, ...]
    unread: Mapping[str, tuple[str, ...]]  # keys without a rule, by file name
    notes: tuple[str, ...]
    forcing: tuple[str, ...] = ()
    purpose: str = ""
    trainer: str = ""
    corrected: tuple[str, ...] = ()  # ids of findings that the framework corrects itself
    own_trainer: bool = False  # a subclass of the Trainer
    patched: bool = False  # the framework replaces parts of the measured libraries
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Tell if a file requests the CPU. The default is GPUs."""
        return any(
            normalise(each.values.get(key)) is True for each in self.configs for key in unmeasured_settings.ON_CPU
        )


def combine(files: Sequence[Config], versions: Mapping[str, str]) -> TrainingJob:
    """Return the job that some files describe together, with some installed versions.

    Raises:
        UserError: two files have the same role, or contradict each other.
    """
    found = role_settings.by_role(files)
    purpose, where = purpose_of(found)
    if purpose:
        return without_training(files, purpose, where)
    known = {name: public(version) for name, version in versions.items()}
    values, sources = collect_values(found, known)
    contradictions.refuse(found, known)
    trainer = trainer_of(found)
    forcing = tuple(dict.fromkeys(unmeasured_settings.forcing_settings(found, values, known, trainer)))
    dropped: list[str] = []
    options = build_options(values, known, dropped) if "strategy" in values and "method" in values else None
    options = None if any(unmeasured_settings.has_unmeasured_strategy(each.config) for each in found) else options
    others = unmeasured_settings.other_settings(found, known)
    return TrainingJob(
        configs=tuple(files),
        options=options,
        values=values,
        sources=sources,
        forcing=forcing,
        not_judged=tuple(dict.fromkeys((*dropped, *others))),
        unread=unread_by_file(files),
        notes=tuple(notes_on(found, sources)),
        trainer=trainer,
        corrected=tuple(each for layer in found for each in layer.config.dialect.corrects(layer.config.values, values)),
        own_trainer=any(each.config.dialect.own_trainer for each in found),
        patched=any(each.config.dialect.patches(each.config.values, values) for each in found),
        arguments=arguments_of(found),
    )


def without_training(files: Sequence[Config], purpose: str, where: str) -> TrainingJob:
    return TrainingJob(
        configs=tuple(files),
        options=None,
        values={},
        sources={},
        forcing=(),
        not_judged=(),
        unread={},
        notes=(f"{where} is a file for {ACTIVITIES.get(purpose, purpose)}, not training",),
        purpose=purpose,
    )


def purpose_of(found: Sequence[RoleSettings]) -> tuple[str, str]:
    """Return what the files are for if not for training, and the file that tells."""
    for layer in found:
        if layer.config.purpose:
            return layer.config.purpose, layer.config.path.name
    return "", ""


def trainer_of(found: Sequence[RoleSettings]) -> str:
    """Return what the job trains with; empty without a trainer's file."""
    return next((each.config.trainer for each in found if each.config.dialect.role == TRAINER), "")


def arguments_of(found: Sequence[RoleSettings]) -> dict[str, Any]:
    """Return the trainer's arguments under the names of transformers and TRL."""
    configs_of_trainer = [each.config for each in found if each.config.dialect.role == TRAINER]
    return {name: value for each in configs_of_trainer for name, value in each.dialect.arguments(each.values).items()}


def unread_by_file(files: Sequence[Config]) -> dict[str, tuple[str, ...]]:
    unread: dict[str, tuple[str, ...]] = {}
    for each in files:
        keys = unmeasured_settings.unread_keys(each)
        unread[each.path.name] = (*unread.get(each.path.name, ()), *keys)
    return unread


def collect_values(
    found: Sequence[RoleSettings], versions: Mapping[str, Version]
) -> tuple[dict[str, Value], dict[str, Source]]:
    """Return the value and the source of each option that a file sets or a tool has a default for.

    A trainer's file takes precedence over a launcher's, and a set value over a default.
    """
    values: dict[str, Value] = {}
    sources: dict[str, Source] = {}
    setters: dict[str, RoleSettings] = {}
    for layer in found:
        for rule in active_rules(layer.config, versions):
            if setters.get(rule.option) is layer:
                continue  # the first rule that matches counts
            if rule.option == AMP and rule.value == "off" and AMP in values:
                continue  # a trainer without mixed precision keeps the launcher's
            values[rule.option], setters[rule.option] = rule.value, layer
            sources[rule.option] = Source(*layer.origin(keys_of(rule, layer.config)))
    roles = {each.config.dialect.role for each in found}
    if "strategy" not in values and roles & {TRAINER, ADAPTER}:
        values["strategy"], sources["strategy"] = "single", Source()
    for layer in reversed(found):
        enables_fsdp = setters.get("strategy") is layer
        for option, value in layer.config.dialect.defaults(values, versions).items():
            if option not in values and (enables_fsdp or option not in FSDP_OPTIONS):
                values[option], sources[option] = value, Source(layer.origin(())[0])
    if "method" not in values and not has_unmatched_method(found):
        values["method"], sources["method"] = "lora", Source()
    return values, sources


def has_unmatched_method(found: Sequence[RoleSettings]) -> bool:
    """Tell if a file states a method that no rule has, such as training with frozen layers."""
    return any(
        is_enabled(layer.config.values[key])
        for layer in found
        for rule in layer.config.dialect.rules_for("method")
        for key in keys_of(rule, layer.config)
    )


def notes_on(found: Sequence[RoleSettings], sources: Mapping[str, Source]) -> Iterator[str]:
    """Yield what was assumed, and which files are missing."""
    roles = {each.config.dialect.role for each in found}
    if sources.get("strategy") == Source() and LAUNCHER not in roles:
        yield "no launcher file: one process is assumed; give the accelerate file as well"
    if sources.get("method") == Source() and found:
        if TRAINER in roles:
            yield "no adapter settings: LoRA is assumed; give adapter_config.json as well"
        else:
            yield "no trainer file: LoRA is assumed; give the trainer's file as well"
    for name, path in unmeasured_settings.missing_files(found):
        yield f"{name} refers to {path}, which was not given; give it with --config as well"


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
    reread = combine(
        [configs.parse(texts[each], each.path) if each in texts else each for each in job.configs], versions
    )
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
    editable = [each for each in job.configs if each.editable]
    in_order = sorted(editable, key=lambda each: (each is not source, each.dialect.role != TRAINER))
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
