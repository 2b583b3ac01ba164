"""A Python script is read as far as its docstring and its imports tell, and its own options leave a job unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.answers.configuration.job import TrainingJob

    Build = Callable[..., TrainingJob]

IMPORTS = "from trl import {trainer}\n"
COMMAND = "accelerate launch --num_processes 2 sft.py --use_peft --dataset_name {data} --attn_implementation eager"


def script(*commands: str, trainer: str = "SFTTrainer") -> str:
    return '"""Trains.\n\n{}\n"""\n\n{}'.format("\n".join(commands), IMPORTS.format(trainer=trainer))


def test_the_command_in_a_docstring_is_read_and_an_import_is_none(job_of: Build) -> None:
    combined = job_of({"sft.py": script(COMMAND.format(data="x/y"))})
    assert [each.program for each in combined.configs] == ["accelerate launch", "sft.py"]
    assert (combined.values["method"], combined.values["attn_implementation"]) == ("lora", "eager")


def test_commands_that_differ_in_their_data_only_are_one(job_of: Build) -> None:
    both = script(COMMAND.format(data="x/y"), COMMAND.format(data="x/z"))
    assert job_of({"sft.py": both}).values["method"] == "lora"


def test_commands_that_train_otherwise_are_refused(job_of: Build) -> None:
    both = script(COMMAND.format(data="x/y"), COMMAND.format(data="x/y").replace("--use_peft ", ""))
    with pytest.raises(UserError, match="several commands start a training"):
        job_of({"sft.py": both})


@pytest.mark.parametrize(("trainer", "expected"), [("GRPOTrainer", "grpo"), ("DPOTrainer", "dpo"), ("Trainer", "sft")])
def test_an_imported_trainer_names_the_training(job_of: Build, trainer: str, expected: str) -> None:
    combined = job_of({"agent.py": script("python examples/agent.py --mode colocate", trainer=trainer)})
    assert combined.trainer == expected


def test_a_script_without_a_command_is_refused_in_one_sentence(job_of: Build) -> None:
    with pytest.raises(UserError, match="its docstring has no command that starts a training") as error:
        job_of({"sft.py": script("Trains a model.")})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "prose",
    ["from trl import SFTTrainer", "we use axolotl for training", "install trl and peft", "import axolotl as a"],
)
def test_the_name_of_a_tool_in_prose_is_no_command(job_of: Build, prose: str) -> None:
    combined = job_of({"README.md": f"{prose}\n\ntrl sft --use_peft --dataset_name x/y\n"})
    assert [each.program for each in combined.configs] == ["trl sft"]


@pytest.mark.parametrize("option", ["--enable_fsdp", "--use_lora True", "--bits 4", "--pure_bf16", "--q_lora True"])
def test_an_option_of_a_scripts_own_that_decides_leaves_the_job_unknown(job_of: Build, option: str) -> None:
    command = f"torchrun --nproc_per_node 2 finetuning.py --gradient_accumulation_steps 1 {option}"
    assert "an option of the script's own" in " ".join(job_of({"run.sh": command}).forcing)


@pytest.mark.parametrize("option", ["--use_lora False", "--lora_r 8", "--num_workers 4", "--lora_weights out"])
def test_an_option_that_decides_nothing_does_not(job_of: Build, option: str) -> None:
    command = f"torchrun --nproc_per_node 2 finetuning.py --gradient_accumulation_steps 1 {option}"
    assert job_of({"run.sh": command}).forcing == ()


def test_a_configuration_with_the_ending_of_a_script_is_read(job_of: Build) -> None:
    combined = job_of({"config.sh": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n"})
    assert [each.dialect.name for each in combined.configs] == ["accelerate"]
