"""Reads which fields of a configuration file go straight to a class of the stack; others are the tool's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from matrix.errors import UserError
from reports.answers.check.uses import Dynamic, Found, Use
from reports.answers.configuration import configs
from reports.answers.configuration.command_lines import TOOL_DIALECTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reports.answers.check.releases_with import ReleaseAnswers
    from reports.answers.check.uses import OptionOwner
    from reports.answers.configuration.configs import Config

CLUSTER: Final = "accelerate.commands.config.config_args.ClusterConfig"
TRAINING: Final = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
OF_PARSERS: Final = frozenset({"TRL", "transformers"})  # dialects of scripts that parse dataclasses
BNB_SECTION: Final = "bnb_config_kwargs."
SPELT: Final = {"reward": "Reward"}  # the others are capitals: SFTConfig, DPOConfig
PEFT_NAMES: Final = {"LORA": "Lora", "IA3": "IA3", "ADALORA": "AdaLora", "LOHA": "LoHa", "LOKR": "LoKr", "VERA": "Vera"}
HINT: Final = re.compile(r"; give --config .*$")


def read_settings(path: Path, releases: ReleaseAnswers, options: Sequence[OptionOwner] = ()) -> Found:
    """Return what a configuration file, or a command line, takes from the stack.

    Args:
        path: the file.
        releases: says which names exist.
        options: the classes whose fields are the options of the scripts that are checked as well.

    Raises:
        UserError: the file cannot be read, or is no configuration of a known tool.
    """
    try:
        parts = configs.read(path)
    except UserError as error:
        raise UserError(HINT.sub("; give a script, a notebook, or a file of one of these tools", str(error))) from None
    found = Found()
    for each in parts:
        read_part(each, releases, options, found)
    return found


def read_part(config: Config, releases: ReleaseAnswers, options: Sequence[OptionOwner], found: Found) -> None:
    outside: list[str] = []
    owner = "" if is_own_program(config) else next(iter(owners(config)), "")
    if owner and releases.is_known(owner) and not options:
        found.uses.append(Use(paths=(owner,), place=config.path.name))
    for key in config.values:
        paths = [each for each in paths_of(key, config, options) if releases.is_known(each)]
        if paths:
            found.uses.append(Use(paths=tuple(paths), place=place_of(key, config)))
        elif "." not in key or key.startswith(BNB_SECTION):
            outside.append(key)
    if outside:
        reader = config.program if is_own_program(config) else config.dialect.name
        several = f"the script or {reader}" if options else reader
        reason = f"{', '.join(outside)}: read by {several} itself, or by no release of the map"
        found.outside.append(Dynamic(place=config.path.name, reason=reason))


def paths_of(key: str, config: Config, options: Sequence[OptionOwner]) -> list[str]:
    """Return the fields of the stack that a key may set; none if the tool reads it itself."""
    name = config.dialect.name
    if is_own_program(config) and not (options and name in OF_PARSERS):
        return []
    if name == "Axolotl":
        field = key.removeprefix(BNB_SECTION)
        return [f"transformers.BitsAndBytesConfig({field})"] if key.startswith(BNB_SECTION) else []
    if "." in key:
        return []
    if options and name in OF_PARSERS:
        own = {field for each in options for field in each.own_fields}
        return [] if key in own else [f"{path}({key})" for each in options for path in each.paths]
    return [f"{each}({key})" for each in owners(config)]


def is_own_program(config: Config) -> bool:
    """Tell if a command line starts a launcher or the user's own script, whose options the dialect only resembles."""
    return bool(config.program) and config.program.partition(" ")[0] not in TOOL_DIALECTS


def owners(config: Config) -> tuple[str, ...]:
    """Return the classes that take the keys of a file."""
    match config.dialect.name:
        case "accelerate":
            return (CLUSTER,)
        case "TRL":
            prefix = SPELT.get(config.trainer, config.trainer.upper())
            scripts = (f"trl.commands.cli_utils.{prefix}ScriptArguments", "trl.ScriptArguments")
            return (f"trl.{prefix}Config", "trl.ModelConfig", "trl.scripts.utils.DatasetMixtureConfig", *scripts)
        case "transformers" | "LLaMA-Factory":
            return TRAINING
        case "PEFT adapter":
            kind = str(config.values.get("peft_type", "")).upper()
            return (f"peft.{PEFT_NAMES[kind]}Config",) if kind in PEFT_NAMES else ()
        case _:
            return ()


def place_of(key: str, config: Config) -> str:
    last = re.escape(key.rpartition(".")[2])
    found = re.search(
        rf"^\s*[{{,]?\s*[\"']?{last}[\"']?\s*:|--{last.replace('_', '[-_]')}\b", config.text, re.MULTILINE
    )
    line = config.text.count("\n", 0, found.start() + len(found[0]) - len(found[0].lstrip())) + 1 if found else 0
    return f"{config.path.name}:{line}" if line else config.path.name
