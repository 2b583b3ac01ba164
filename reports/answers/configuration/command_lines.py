"""Reads command lines such as ``accelerate launch train.py --use_peft``: the values of a launcher and of a trainer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from matrix.errors import UserError
from reports.answers.configuration import launchers, shell
from reports.answers.configuration.dialects import TRAINER, normalise
from reports.answers.configuration.dialects.accelerate import ACCELERATE
from reports.answers.configuration.dialects.axolotl import AXOLOTL
from reports.answers.configuration.dialects.llamafactory import LLAMAFACTORY
from reports.answers.configuration.dialects.recognition import DIALECTS, has_marks, recognise
from reports.answers.configuration.dialects.torchrun import DEEPSPEED_LAUNCHER, PROCESSES, TORCHRUN
from reports.answers.configuration.dialects.trainers import named_trainer, subcommand_purpose
from reports.answers.configuration.dialects.training_arguments import TRANSFORMERS
from reports.answers.configuration.dialects.trl import TRL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from reports.answers.configuration.dialects import Dialect
    from reports.answers.configuration.launchers import LaunchedProgram
    from reports.answers.configuration.shell import ShellCommand

TRAINERS: Final = tuple(each for each in DIALECTS if each.role == TRAINER)
TOOL_DIALECTS: Final = {"llamafactory-cli": LLAMAFACTORY, "lmf": LLAMAFACTORY, "axolotl": AXOLOTL, "trl": TRL}
SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch")
FILES: Final = (".yaml", ".yml", ".json")
# Sections of accelerate's file, by the prefix of the options that belong to them.
SECTIONS: Final = {
    "fsdp_": "fsdp_config",
    "dynamo_": "dynamo_config",
    "megatron_lm_": "megatron_lm_config",
    "parallelism_config_": "parallelism_config",
    "fp8_": "fp8_config",
}
DEEPSPEED_OPTIONS: Final = (
    *("zero_stage", "offload_optimizer_device", "offload_param_device", "zero3_init_flag", "zero3_save_16bit_model"),
    *("deepspeed_config_file", "deepspeed_hostfile", "deepspeed_multinode_launcher", "gradient_clipping"),
)
STRATEGIES: Final = {
    "use_fsdp": "FSDP",
    "use_deepspeed": "DEEPSPEED",
    "use_megatron_lm": "MEGATRON_LM",
    "multi_gpu": "MULTI_GPU",
    "tpu": "TPU",
}
# What TRL's named configurations set, for `--accelerate_config`.
WRAPPING: Final = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_cpu_ram_efficient_loading": True}
NAMED_LAUNCHES: Final[dict[str, dict[str, Any]]] = {
    "single_gpu": {"distributed_type": "NO", "num_processes": 1},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    "fsdp1": {"distributed_type": "FSDP", "fsdp_config": {**WRAPPING, "fsdp_version": 1}},
    "fsdp2": {"distributed_type": "FSDP", "fsdp_config": {**WRAPPING, "fsdp_version": 2}},
    **{
        f"zero{stage}": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": stage}}
        for stage in (1, 2, 3)
    },
}
TRAINING_OPTIONS: Final = frozenset(
    {
        *("per_device_train_batch_size", "learning_rate", "num_train_epochs", "max_steps", "do_train"),
        *("gradient_accumulation_steps", "gradient_checkpointing", "optim"),
    }
)
ADAPTER_OPTIONS: Final = frozenset({"use_peft", "use_peft_lora"})
LAUNCH_OPTIONS: Final = ("num_processes", "num_machines", "config_file", "mixed_precision", *STRATEGIES)


@dataclass(frozen=True, kw_only=True)
class CommandPart:
    """The values that a command line gives to its launcher or to its trainer. ``mentioned`` are files that it names."""

    dialect: Dialect
    values: Mapping[str, Any]
    program: str
    mentioned: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()


def has_command(text: str, suffix: str = "") -> bool:
    """Tell if a text is a script, or contains a command that can start a training."""
    return (
        suffix in SCRIPTS
        or text.startswith("#!")
        or any(shell.LAUNCHES.search(line) for line in text.splitlines() if not line.lstrip().startswith("#"))
    )


def parse(text: str, path: Path) -> tuple[CommandPart, ...]:
    """Return the parts of the command that trains, or else of the first one that does something else with a model.

    Raises:
        UserError: no command starts a training, several do, or a command starts no program.
    """
    found: list[tuple[int, tuple[CommandPart, ...]]] = []
    for command in shell.commands(text, path):
        launch = launchers.find(command.words)
        if launch is not None:
            several = tuple(parts(launch, command, path))
            if several:
                found.append((command.line, several))
    training = [each for each in found if not any(part.dialect.purpose(part.values, part.program) for part in each[1])]
    if not found:
        raise UserError(f"{path}: contains no command that starts a training; give one such as `accelerate launch`")
    if len({signature(each[1]) for each in training}) > 1:
        lines = f"lines {training[0][0]} and {training[1][0]}"
        raise UserError(f"{path}: several commands start a training ({lines}); give a file with one of them")
    return (training or found)[0][1]


def signature(several: Iterable[CommandPart]) -> str:
    """Return what the rules read of a command, so that two commands that differ in their data sets count as one."""
    return repr(
        [
            (part.dialect.name, part.dialect.trainer(part.values, part.program), part.mentioned, known_values(part))
            for part in several
        ]
    )


def known_values(part: CommandPart) -> list[tuple[str, Any]]:
    dialect = part.dialect
    known = {path for rule in dialect.rules for key in rule.keys for path in key.split("|")}
    known |= {row.key for row in dialect.not_judged} | set(dialect.references)
    return sorted((name, value) for name, value in part.values.items() if name in known)


def parts(launch: LaunchedProgram, command: ShellCommand, path: Path) -> Iterator[CommandPart]:
    """Yield the launcher's part and the trainer's; neither for a script of another kind."""
    if launch.launcher == launchers.TOOL:
        yield from tool_parts(launch, command, path)
        return
    if not launch.program:
        if launch.launcher == launchers.PYTHON:
            return
        raise UserError(
            f"{path}:{command.line}: `{launch.launcher}` starts no program; "
            f"add the script, as in `{launch.launcher} train.py`"
        )
    is_given = PurePath(launch.program).name == path.name  # a script whose docstring says how to start it
    trainer = trainer_part(launch.program, launch.arguments, is_given=is_given)
    if launch.launcher == launchers.PYTHON:
        if trainer is not None and (is_given or trains(trainer)):
            yield trainer
        return
    yield launcher_part(launch)
    if trainer is not None:
        yield trainer


def launcher_part(launch: LaunchedProgram) -> CommandPart:
    if launch.launcher == launchers.ACCELERATE:
        return accelerate_part(launch.options, launch.unresolved)
    options = {name: typed(value) for name, value in launch.options.items()}
    processes = options.get("nproc_per_node", options.get("nproc_per_rank"))
    values: dict[str, Any] = {"nnodes": options.get("nnodes")}
    dialect = TORCHRUN
    if launch.launcher == launchers.DEEPSPEED:
        dialect = DEEPSPEED_LAUNCHER
        included = str(options.get("include") or "")
        processes = options.get("num_gpus") or (len(included.split(",")) if ":" in included else "auto")
        values = {"nnodes": options.get("num_nodes"), "launcher": "deepspeed"}
    values[PROCESSES] = processes if isinstance(processes, int) or processes is None else "auto"
    stated = {name: value for name, value in values.items() if value is not None}
    return CommandPart(dialect=dialect, values=stated, program=launch.launcher, unresolved=launch.unresolved)


def accelerate_part(options: Mapping[str, str | bool], unresolved: tuple[str, ...] = ()) -> CommandPart:
    """Return the options of ``accelerate launch`` as the keys of its file."""
    values: dict[str, Any] = {}
    for name, raw in options.items():
        value = typed(raw)
        section = next((each for prefix, each in SECTIONS.items() if name.startswith(prefix)), "")
        if name in STRATEGIES:
            values["distributed_type"] = STRATEGIES[name]
        elif name == "cpu":
            values["use_cpu"] = True
        elif name in DEEPSPEED_OPTIONS:
            values.setdefault("deepspeed_config", {})[name] = value
        elif section:
            values.setdefault(section, {})[name] = value
        elif name not in ("config_file", "m", "module"):
            values[name] = value
    processes = values.get("num_processes")
    if isinstance(processes, str):  # a variable, so more than one
        values["num_processes"] = "auto"
    several = isinstance(processes, str) or (isinstance(processes, int) and processes > 1)
    config = options.get("config_file")
    if several and config is None:
        values.setdefault("distributed_type", "MULTI_GPU")
    mentioned = (config,) if isinstance(config, str) else ()
    return CommandPart(
        dialect=ACCELERATE,
        values=values,
        program=launchers.ACCELERATE,
        mentioned=mentioned,
        unresolved=unresolved,
    )


def trainer_part(
    program: str, words: Sequence[str], dialect: Dialect | None = None, *, is_given: bool = False
) -> CommandPart | None:
    """Return the values of a program's options; None if they are those of no known trainer.

    The options of a script that the user gave as a file (``is_given``) may all be its own.
    """
    values, mentioned, unresolved = program_options(words)
    name = program if "/" not in program else PurePath(program).name
    tool = dialect or module_dialect(program)
    found = recognise(values, TRAINERS)
    if tool is None and found is None and not mentioned and not is_given:
        return None
    return CommandPart(
        dialect=tool or trainer_dialect(found, name, values),
        values=values,
        program=name,
        mentioned=mentioned,
        unresolved=unresolved,
    )


def trainer_dialect(found: Dialect | None, program: str, values: Mapping[str, Any]) -> Dialect:
    """Return the dialect of a script's options. Only TRL's scripts train in full without an option for adapters."""
    if found is None or found in (TRL, TRANSFORMERS):
        return TRL if named_trainer(program) or ADAPTER_OPTIONS & values.keys() else TRANSFORMERS
    return found


def trains(part: CommandPart) -> bool:
    """Tell if a plain script trains: by its name, or by options that only a trainer has."""
    words = re.split(r"[^a-z]+", part.program.lower())
    by_name = bool(named_trainer(part.program)) or "train" in words or "finetune" in words
    return by_name or has_marks(part.dialect, part.values) or bool(TRAINING_OPTIONS & part.values.keys())


def module_dialect(program: str) -> Dialect | None:
    """Return the dialect of a program that is part of a tool, such as ``axolotl.cli.train``."""
    lowered = program.lower()
    known = (("axolotl", AXOLOTL), ("llamafactory", LLAMAFACTORY), ("trl/scripts", TRL), ("trl.scripts", TRL))
    return next((dialect for word, dialect in known if word in lowered), None)


def tool_parts(launch: LaunchedProgram, command: ShellCommand, path: Path) -> Iterator[CommandPart]:
    """Yield the parts of a command of LLaMA-Factory, Axolotl or TRL, which launch their own programs."""
    action, *rest = launch.arguments or ("",)
    if not action or action.startswith("-"):
        raise UserError(
            f"{path}:{command.line}: `{launch.program}` has no subcommand; add it, as in `{launch.program} "
            f"{'sft' if launch.program == 'trl' else 'train'} config.yaml`"
        )
    if action in ("env", "version", "help", "fetch", "skills"):
        return
    program = f"{launch.program} {action}"
    if launch.program == "trl":
        own, rest = split_launch_options(rest)
        launcher = trl_launcher(own)
        if launcher is not None and not subcommand_purpose(program):
            yield launcher
    elif normalise(command.variables.get("FORCE_TORCHRUN")) in (True, 1):
        processes = typed(command.variables.get("NPROC_PER_NODE", "auto"))
        values = {PROCESSES: processes if isinstance(processes, int) else "auto"}
        yield CommandPart(dialect=TORCHRUN, values=values, program=launchers.TORCHRUN)
    trainer = trainer_part(program, rest, TOOL_DIALECTS[launch.program])
    if trainer is not None:
        yield trainer


def split_launch_options(words: Sequence[str]) -> tuple[dict[str, str | bool], list[str]]:
    """Separate the options of ``accelerate launch`` from those of TRL's script."""
    own: dict[str, str | bool] = {}
    rest: list[str] = []
    index = 0
    while index < len(words):
        name, equals, value = words[index].removeprefix("--").partition("=")
        is_launch = words[index].startswith("--") and (
            name in (*LAUNCH_OPTIONS, "accelerate_config") or (name.startswith("fsdp_") and name != "fsdp_config")
        )
        if not is_launch:
            rest.append(words[index])
        elif equals or name in launchers.FLAGS[launchers.ACCELERATE] or index + 1 == len(words):
            own[name] = value if equals else True
        else:
            index += 1
            own[name] = words[index]
        index += 1
    return own, rest


def trl_launcher(options: Mapping[str, str | bool]) -> CommandPart | None:
    if not options:
        return None
    named = options.get("accelerate_config")
    if named in NAMED_LAUNCHES:
        return CommandPart(dialect=ACCELERATE, values=NAMED_LAUNCHES[str(named)], program=launchers.ACCELERATE)
    rest = {name: value for name, value in options.items() if name != "accelerate_config"}
    return accelerate_part({**rest, "config_file": named} if named is not None else rest)


def program_options(words: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Return the options of a program, the configuration files that it names, and variables without a value."""
    values: dict[str, Any] = {}
    mentioned: list[str] = []
    unresolved: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if is_option(word):
            name, equals, text = word.lstrip("-").partition("=")
            several = [text] if equals else []
            while (
                not equals
                and index < len(words)
                and not is_option(words[index])
                and not launchers.is_list(words[index])
            ):
                several.append(words[index])
                index += 1
            put(values, name.replace("-", "_"), several, mentioned)
        elif launchers.is_variable(word):
            unresolved.append(word)
        elif word.endswith(FILES):
            mentioned.append(word)
        elif "=" in word:  # an override of LLaMA-Factory
            name, _, text = word.partition("=")
            put(values, name, [text], mentioned)
    return values, tuple(mentioned), tuple(unresolved)


def put(values: dict[str, Any], name: str, several: Sequence[str], mentioned: list[str]) -> None:
    """Add the value of an option. Files of the program's own options count as mentioned."""
    if name in ("config", "config_file") and len(several) == 1:
        mentioned.append(several[0])
    elif not several and name.startswith("no_") and name != "no_cuda":
        values[name.removeprefix("no_")] = False
    else:
        values[name] = True if not several else typed(several[0]) if len(several) == 1 else [typed(e) for e in several]


def ends_value(word: str) -> bool:
    return is_option(word) or launchers.is_list(word)


def is_option(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def typed(raw: bool | str) -> Any:  # noqa: FBT001 - an option without a value is a flag
    """Return an option's text as YAML interprets it, and JSON as mappings and lists."""
    if isinstance(raw, bool):
        return raw
    if raw[:1] in "{[":
        try:
            return json.loads(raw)
        except json.JSONDecodeError:
            return raw
    value = normalise(raw)
    if value is None or isinstance(value, bool | int):
        return value
    try:
        return float(raw)
    except ValueError:
        return raw
