"""Finds the launcher in a command, and separates its options from the program that it starts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ACCELERATE, TORCHRUN, DEEPSPEED, PYTHON, TOOL = "accelerate launch", "torchrun", "deepspeed", "python", "tool"
MODULES: Final = {
    "accelerate.commands.launch": ACCELERATE,
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "deepspeed.launcher.runner": DEEPSPEED,
}
TOOLS: Final = ("llamafactory-cli", "lmf", "axolotl", "trl")  # commands that launch their own programs
SILENT: Final = ("from", "import", "echo", "printf", "pip", "git", "cat", "cd", "mkdir", "#", "sed", "grep", "which")
# Their subcommands; any other word behind such a name is prose.
ACTIONS: Final = {
    "trl": frozenset(
        {
            *("sft", "dpo", "grpo", "kto", "rloo", "reward", "orpo", "cpo", "ppo", "gkd", "bco", "xpo"),
            *("chat", "env", "skills", "vllm-serve", "vllm_serve"),
        }
    ),
    "axolotl": frozenset(
        {
            *("train", "preprocess", "evaluate", "inference", "merge-lora", "merge-sharded-fsdp-weights", "fetch"),
            *("lm-eval", "quantize", "vllm-serve", "delinearize-llama4", "agent-docs", "config-schema"),
        }
    ),
    "llamafactory-cli": frozenset({"train", "chat", "webchat", "api", "webui", "export", "eval", "env", "version"}),
}
ALIASES: Final = {"lmf": "llamafactory-cli"}
# Options without a value, according to the launchers' parsers.
FLAGS: Final = {
    ACCELERATE: frozenset(
        {
            *("quiet", "q", "cpu", "multi_gpu", "tpu", "enable_cpu_affinity", "dynamo_use_fullgraph", "debug", "m"),
            *("dynamo_use_dynamic", "dynamo_use_regional_compilation", "use_deepspeed", "use_fsdp", "use_megatron_lm"),
            *("use_parallelism_config", "same_network", "module", "no_python", "tpu_cluster", "no_tpu_cluster"),
            *("tpu_use_sudo", "downcast_bf16", "fp8_use_autocast_during_eval", "ipex", "use_xpu", "use_kt"),
        }
    ),
    TORCHRUN: frozenset({"standalone", "no_python", "module", "m", "run_path", "use_env", "signals_to_handle_all"}),
    DEEPSPEED: frozenset(
        {
            *("no_local_rank", "no_python", "module", "m", "no_ssh", "no_ssh_check", "force_multi", "save_pid"),
            *("bind_cores_to_rank", "elastic_training"),
        }
    ),
    PYTHON: frozenset({"u", "O", "B", "E", "s", "S", "I", "v", "OO"}),
}
MODULE_FLAGS: Final = ("m", "module")
PYTHONS: Final = re.compile(r"python(\d(\.\d+)?)?$")


@dataclass(frozen=True, kw_only=True)
class LaunchedProgram:
    """A launcher with its options, the program that it starts and the words behind it.

    ``unresolved`` are variables among the options that the script does not set.
    """

    launcher: str
    options: Mapping[str, str | bool]
    program: str
    arguments: tuple[str, ...]
    unresolved: tuple[str, ...] = ()


def find(words: Sequence[str]) -> LaunchedProgram | None:
    """Return the launch in a command; None if it launches nothing. An empty program means that none was named."""
    if words and words[0] in SILENT:
        return None
    for index, word in enumerate(words):
        name = PurePath(word).name
        following = tuple(words[index + 1 :])
        if name in TOOLS and is_action(name, following):
            return LaunchedProgram(launcher=TOOL, options={}, program=name, arguments=following)
        launcher, used = launcher_at(name, following)
        if launcher:
            return parsed(launcher, following[used:])
    return None


def is_action(tool: str, following: Sequence[str]) -> bool:
    """Tell if the words behind a tool's name are a command of it, and not prose or an import."""
    if not following or following[0].startswith(("-", "$")):
        return True
    return following[0] in ACTIONS[ALIASES.get(tool, tool)]


def launcher_at(name: str, following: tuple[str, ...]) -> tuple[str, int]:
    """Return the launcher that a word names, and how many of the following words belong to its name."""
    if name == "accelerate" and following[:1] == ("launch",):
        return ACCELERATE, 1
    if name in ("accelerate-launch", TORCHRUN, DEEPSPEED):
        return ACCELERATE if name == "accelerate-launch" else name, 0
    if PYTHONS.match(name):
        for used, word in enumerate(following):
            if word == "-m" and len(following) > used + 1 and following[used + 1] in MODULES:
                return MODULES[following[used + 1]], used + 2
            if not word.startswith("-"):
                break
        return PYTHON, 0
    return "", 0


def parsed(launcher: str, words: Sequence[str]) -> LaunchedProgram:
    """Return a launcher's options and its program, which is the first word that belongs to no option."""
    options: dict[str, str | bool] = {}
    unresolved: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        if is_variable(word) and index + 1 < len(words):
            unresolved.append(word)
        elif not word.startswith("-"):
            break
        else:
            name, equals, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            if name in MODULE_FLAGS and launcher == PYTHON:
                break
            if equals:
                options[name] = value
            elif name in FLAGS[launcher] or index + 1 == len(words):
                options[name] = True
            else:
                index += 1
                options[name] = words[index]
        index += 1
    rest = words[index:]
    if rest[:1] and rest[0] in ("-m", "--module"):
        rest = rest[1:]
    if launcher != PYTHON and rest and PYTHONS.match(PurePath(rest[0]).name):  # torchrun --no-python python train.py
        rest = rest[1:]
    return LaunchedProgram(
        launcher=launcher,
        options=options,
        program=rest[0] if rest else "",
        arguments=tuple(rest[1:]),
        unresolved=tuple(unresolved),
    )


def is_list(word: str) -> bool:
    """Tell if a word is a variable that stands for several options."""
    return is_variable(word) and re.search(r"@|\*|ARG|OPT|FLAG", word.upper()) is not None


def is_variable(word: str) -> bool:
    """Tell if a word is only a variable that the script does not set."""
    return re.fullmatch(r"\$\{?\w+(\[[@*]\])?\}?|\$@|\$\*", word) is not None
