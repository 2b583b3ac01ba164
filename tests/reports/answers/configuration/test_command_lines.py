"""A file with a command line gives a launcher and a trainer, and is never edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from reports.answers.configuration import job

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.answers.configuration.job import TrainingJob

    Build = Callable[..., TrainingJob]

QLORA = """\
#!/bin/bash
# starts the training
export WANDB_MODE=offline
MODEL=mistralai/Mistral-7B-v0.1
ARGS=(
  --lora_r 8
  --load_in_4bit
)
CUDA_VISIBLE_DEVICES=0,1 accelerate launch \\
    --use_fsdp --fsdp_version 2 \\
    --num_processes=4 \\
    --mixed_precision bf16 \\
    scripts/train.py \\
    --model_name_or_path ${MODEL} \\
    --use_peft "${ARGS[@]}" \\
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' --gradient_checkpointing \\
    --output_dir "$HOME/out" 2>&1 | tee log.txt
"""
TRL_FILE = "model_name_or_path: x/llama\ndataset_name: x/y\nuse_peft: true\nuse_dora: true\n"
FSDP_FILE = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\nnum_processes: 8\n"


def stated(combined: TrainingJob, *options: str) -> tuple[Any, ...]:
    return tuple(combined.values.get(name) for name in options)


def names(combined: TrainingJob) -> list[str]:
    return [each.dialect.name for each in combined.configs]


def test_one_command_gives_a_launcher_and_a_trainer(job_of: Build) -> None:
    combined = job_of({"train.sh": QLORA})
    assert names(combined) == ["accelerate", "TRL"]
    assert stated(combined, "strategy", "method", "quant", "model") == ("fsdp2", "lora", "nf4", "mistral")
    assert stated(combined, "world_size", "gradient_checkpointing", "amp") == (4, "non_reentrant", "bf16")
    assert combined.arguments["lora_r"] == 8


@pytest.mark.parametrize(
    ("command", "strategy", "size"),
    [
        ("torchrun --nproc_per_node 4 --nnodes=1 sft.py --use_peft", "ddp", 4),
        ("torchrun --standalone --nproc-per-node=gpu sft.py --use_peft", "ddp", None),
        ("torchrun sft.py --use_peft", "single", None),
        ("python3 -m torch.distributed.run --nproc_per_node=2 sft.py --use_peft", "ddp", None),
        ("python -m torch.distributed.launch --nproc_per_node=2 --use_env sft.py --use_peft", "ddp", None),
        ("accelerate launch --multi_gpu --num_processes 2 sft.py --use_peft", "ddp", None),
        ("accelerate launch --num_processes $GPUS sft.py --use_peft", "ddp", None),
        ("accelerate launch -m trl.scripts.sft --use_peft", "single", None),
        ("python -u sft.py --use_peft --fsdp 'full_shard auto_wrap'", "fsdp2", None),
        ("srun bash -c 'torchrun --nproc_per_node 8 sft.py --use_peft'", "ddp", None),
        ("uv run accelerate launch --use_fsdp sft.py --use_peft", "fsdp1", None),
    ],
)
def test_the_launcher_sets_the_strategy(job_of: Build, command: str, strategy: str, size: int | None) -> None:
    combined = job_of({"run.txt": command})
    assert stated(combined, "strategy", "world_size", "method") == (strategy, size, "lora")


def test_deepspeed_launches_make_a_job_unknown(job_of: Build) -> None:
    combined = job_of({"run.sh": "deepspeed --num_gpus 4 sft.py --use_peft --deepspeed zero3.json\n"})
    assert names(combined) == ["deepspeed launcher", "TRL"]
    assert combined.options is None
    assert "run.sh refers to zero3.json, which was not given; give it with --config as well" in combined.notes


@pytest.mark.parametrize(
    ("command", "dialects"),
    [
        ("trl sft --accelerate_config fsdp2 --model_name_or_path x --use_peft", ["accelerate", "TRL"]),
        ("trl sft --num_processes 2 --config sft.yaml", ["accelerate", "TRL"]),
        ("llamafactory-cli train --stage sft --do_train --finetuning_type lora", ["LLaMA-Factory"]),
        ("FORCE_TORCHRUN=1 NPROC_PER_NODE=4 llamafactory-cli train a.yaml", ["torchrun", "LLaMA-Factory"]),
        ("accelerate launch -m axolotl.cli.train a.yml --micro-batch-size 2", ["accelerate", "Axolotl"]),
        ("axolotl train a.yml", ["Axolotl"]),
        ("torchrun --nproc_per_node 2 run_clm.py --train_file a.txt --do_train", ["torchrun", "transformers"]),
        ("torchrun --nproc_per_node 2 mine.py --epochs 3", ["torchrun"]),
    ],
)
def test_the_program_decides_the_dialect(job_of: Build, command: str, dialects: list[str]) -> None:
    assert names(job_of({"run.sh": command})) == dialects


@pytest.mark.parametrize(
    ("command", "trainer"),
    [
        ("trl dpo --model_name_or_path x --use_peft", "dpo"),
        ("accelerate launch examples/scripts/grpo.py --model_name_or_path x", "grpo"),
        ("python train_dpo.py --per_device_train_batch_size 2 --use_peft", "dpo"),
        ("python sft.py --packing false --use_peft", "sft"),
    ],
)
def test_the_name_of_the_program_tells_the_trainer(job_of: Build, command: str, trainer: str) -> None:
    assert job_of({"run.sh": command}).trainer == trainer


@pytest.mark.parametrize(
    ("command", "purpose"),
    [
        ("llamafactory-cli export merge.yaml", "export"),
        ("llamafactory-cli chat --model_name_or_path x", "chat"),
        ("axolotl merge-lora a.yml", "merge"),
        ("axolotl preprocess a.yml", "preprocess"),
        ("accelerate launch eval.py --model_name_or_path x --output_dir y", "evaluation"),
    ],
)
def test_a_command_that_does_not_train_has_a_purpose(job_of: Build, command: str, purpose: str) -> None:
    combined = job_of({"run.sh": command})
    assert (combined.purpose, combined.options) == (purpose, None)


def test_a_command_overrides_the_files_that_it_names(job_of: Build) -> None:
    command = "accelerate launch --config_file f.yaml --num_processes 4 sft.py --config t.yaml --use_dora false"
    combined = job_of({"run.sh": command, "f.yaml": FSDP_FILE, "t.yaml": TRL_FILE})
    assert stated(combined, "strategy", "world_size", "method") == ("fsdp1", 4, "lora")
    assert combined.sources["strategy"].config is combined.configs[2]
    assert combined.sources["world_size"].config is combined.configs[0]
    assert (combined.forcing, combined.notes) == ((), ())


def test_files_that_a_command_names_but_nobody_gave_make_a_job_unknown(job_of: Build) -> None:
    combined = job_of({"run.sh": "accelerate launch --config_file f.yaml sft.py --use_peft"})
    assert "the settings in f.yaml, to which run.sh refers" in combined.forcing
    assert "run.sh refers to f.yaml, which was not given; give it with --config as well" in combined.notes


def test_a_variable_that_the_file_does_not_set_makes_a_job_unknown(job_of: Build) -> None:
    combined = job_of({"run.sh": "accelerate launch $LAUNCH_ARGS sft.py --use_peft $@"})
    assert combined.forcing == (
        "$LAUNCH_ARGS (run.sh does not set this variable)",
        "$@ (run.sh does not set this variable)",
    )


def test_a_default_of_a_variable_is_its_value(job_of: Build) -> None:
    combined = job_of({"run.sh": "GPUS=${GPUS:-4}\ntorchrun --nproc_per_node $GPUS sft.py --use_peft\n"})
    assert stated(combined, "world_size") == (4,)


def test_commands_before_the_training_do_not_matter(job_of: Build) -> None:
    lines = (
        "pip install trl && cd work",
        "python prepare.py --out data",
        "echo torchrun x.py",
        "python sft.py --use_peft",
    )
    assert names(job_of({"run.sh": "\n".join(lines)})) == ["TRL"]


def test_the_output_of_a_command_is_an_unknown_number_of_processes(job_of: Build) -> None:
    combined = job_of({"run.sh": "torchrun --nproc_per_node $(nvidia-smi -L | wc -l) sft.py --use_peft"})
    assert stated(combined, "strategy", "world_size") == ("ddp", None)


def test_a_command_can_stand_in_prose(job_of: Build) -> None:
    text = "It doesn't work:\n\n    accelerate launch --num_processes 2 sft.py --use_peft\n\nThat isn't what I want.\n"
    assert stated(job_of({"issue.txt": text}), "strategy", "method") == ("ddp", "lora")


def test_the_options_of_pefts_example_script_are_read(job_of: Build) -> None:
    options = "--use_peft_lora True --use_4bit_quantization True --use_nested_quant True --use_flash_attn True"
    combined = job_of({"run.sh": f"torchrun --nproc_per_node 8 train.py {options}"})
    assert stated(combined, "method", "quant", "bnb_4bit_use_double_quant") == ("lora", "nf4", True)
    assert stated(combined, "attn_implementation") == ("flash_attention_2",)


def test_the_code_of_a_script_is_not_looked_at(job_of: Build) -> None:
    assert "the code of mine.py (in run.sh)" in job_of({"run.sh": "python mine.py --use_peft"}).not_judged


def test_command_lines_are_never_edited(job_of: Build) -> None:
    combined = job_of({"train.sh": QLORA})
    assert not any(each.editable for each in combined.configs)
    assert job.patch(combined, {"method": "dora"}, {}) is None


def test_a_file_beside_a_command_is_edited(job_of: Build) -> None:
    combined = job_of({"run.sh": "accelerate launch --use_fsdp sft.py --config t.yaml", "t.yaml": TRL_FILE})
    changed = job.patch(combined, {"method": "lora"}, {})
    assert changed is not None
    assert list(changed[1].values()) == [TRL_FILE.replace("use_dora: true", "use_dora: false")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accelerate launch --use_fsdp --fsdp_version 2\n", "run.sh:1: `accelerate launch` starts no program; add the"),
        ("ls\ntorchrun --nproc_per_node 2\n", "run.sh:2: `torchrun` starts no program"),
        ("trl --help\n", "`trl` has no subcommand"),
        ("echo hello\n", "contains no command that starts a training"),
        (
            "python sft.py --use_peft\npython dpo.py --use_peft\n",
            r"several commands start a training \(lines 1 and 2\)",
        ),
        ("accelerate launch 'train.py\n", "run.sh:1: a quote is not closed"),
    ],
)
def test_a_bad_command_line_is_refused_in_one_sentence(job_of: Build, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        job_of({"run.sh": text})
    assert "\n" not in str(error.value)


def test_a_configuration_that_mentions_a_command_is_a_configuration(job_of: Build) -> None:
    assert names(job_of({"t.yaml": f"# accelerate launch sft.py --config t.yaml\n{TRL_FILE}"})) == ["TRL"]
    assert names(job_of({"settings": TRL_FILE})) == ["TRL"]
