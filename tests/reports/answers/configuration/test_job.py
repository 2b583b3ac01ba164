"""What files ask for, together, as a point of the option space; and what they would say instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from reports.answers.configuration import configs, job

if TYPE_CHECKING:
    from cases.space.options import Options

EXAMPLES = Path(__file__).parent / "configs"
NEW = {"torch": "2.15.0", "transformers": "5.23.0", "peft": "0.21.2", "accelerate": "1.15.0", "trl": "1.16.0"}


def example(*names: str, **versions: str) -> job.TrainingJob:
    return job.of([configs.read(EXAMPLES / name) for name in names], {**NEW, **versions})


def written(*texts: str, **versions: str) -> job.TrainingJob:
    found = [configs.parsed(text, Path(f"{number}.yaml")) for number, text in enumerate(texts)]
    return job.of(found, {**NEW, **versions})


def options(found: job.TrainingJob) -> Options:
    assert found.options is not None
    assert found.options.why_illegal == ""
    return found.options


def says(found: job.TrainingJob, **wanted: Any) -> bool:
    point = options(found)
    return {name: getattr(point, name) for name in wanted} == wanted


def test_an_accelerate_file_says_how_weights_are_sharded() -> None:
    found = example("accelerate_fsdp1.yaml")
    assert says(found, strategy="fsdp1", use_orig_params=False, auto_wrap_policy="transformer", sync_module_states=True)
    assert says(found, front_end="accelerate", method="lora")
    assert "LoRA is assumed" in found.notes[0]


def test_the_second_fsdp_is_told_from_the_first() -> None:
    assert says(example("accelerate_fsdp2.yaml"), strategy="fsdp2", reshard_after_forward=True)


def test_a_trainer_s_file_says_what_is_trained_and_a_launcher_s_how() -> None:
    found = example("accelerate_fsdp1.yaml", "trl_qlora.yaml")
    assert says(found, quant="nf4", method="lora", torch_dtype="bf16", front_end="sft", model="mistral")
    assert says(found, strategy="fsdp1", use_orig_params=False)
    assert found.notes == ()


def test_without_a_launcher_s_file_one_process_is_assumed_and_that_is_said() -> None:
    found = example("trl_lora.yaml")
    assert says(found, strategy="single", world_size=1)
    assert "one process is assumed" in found.notes[0]


def test_the_trainer_puts_pefts_policy_in_the_place_of_any_other() -> None:
    both = ("accelerate_fsdp1.yaml", "trl_dora.yaml")
    assert says(example(*both), auto_wrap_policy="peft", method="dora")
    assert says(example(*both, transformers="4.38.0"), auto_wrap_policy="transformer")


def test_the_storage_of_four_bit_weights_depends_on_the_release_of_trl() -> None:
    """It followed the load dtype, until it got a key of its own."""
    both = ("accelerate_fsdp1.yaml", "trl_qlora.yaml")
    assert says(example(*both, trl="0.23.0"), bnb_4bit_quant_storage="bf16")
    assert says(example(*both, trl="0.26.1"), bnb_4bit_quant_storage="uint8")


def test_axolotl_stores_four_bit_weights_in_bfloat16_unasked() -> None:
    found = example("axolotl_qlora_fsdp.yml", transformers="4.44.2")
    assert says(
        found,
        quant="nf4",
        bnb_4bit_quant_storage="bf16",
        bnb_4bit_use_double_quant=True,
        strategy="fsdp1",
        auto_wrap_policy="peft",
    )
    assert says(
        found,
        gradient_checkpointing="reentrant",
        gradient_accumulation_steps=2,
        attn_implementation="flash_attention_2",
    )


@pytest.mark.parametrize(
    ("transformers", "values", "strategy"),
    [
        ("4.56.1", "", "fsdp1"),
        ("5.3.0", "", "fsdp1"),
        ("5.10.0", "", "fsdp2"),
        ("4.57.3", "2", "fsdp1"),  # the key is not heard yet
        ("5.0.0", "2", "fsdp2"),
        ("5.23.0", "1", "fsdp1"),
    ],
)
def test_which_fsdp_the_trainer_means_depends_on_its_release(transformers: str, values: str, strategy: str) -> None:
    version = f"\nfsdp_config:\n  version: {values}\n" if values else "\n"
    found = written(f"use_peft: true\nfsdp: full_shard auto_wrap{version}", transformers=transformers)
    assert says(found, strategy=strategy, auto_wrap_policy="peft" if strategy == "fsdp1" else "transformer")


@pytest.mark.parametrize(("accelerate", "original"), [("0.24.1", False), ("0.25.0", True), ("1.15.0", True)])
def test_what_accelerate_takes_for_what_is_left_out_depends_on_its_release(accelerate: str, *, original: bool) -> None:
    found = written("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n", accelerate=accelerate)
    assert says(found, use_orig_params=original, sync_module_states=True, auto_wrap_policy="none")


def test_what_a_trainer_implies_of_fsdp_is_not_said_over_a_launcher() -> None:
    found = written("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n", "adapter: lora\nbase_model: x\n")
    assert says(found, strategy="fsdp1", front_end="trainer", use_orig_params=True)
    assert found.sources["use_orig_params"].config is found.configs[0]


def test_words_of_the_trainer_say_how_weights_are_sharded() -> None:
    found = written("use_peft: false\nfsdp: shard_grad_op auto_wrap offload\nfsdp_config:\n  version: 1\n")
    assert says(
        found,
        strategy="fsdp1",
        sharding_strategy="shard_grad_op",
        cpu_offload=True,
        auto_wrap_policy="transformer",
        method="full",
    )


def test_axolotl_says_the_version_of_fsdp_beside_its_settings() -> None:
    found = example("axolotl_qlora_fsdp2.yaml")
    assert says(
        found,
        strategy="fsdp2",
        auto_wrap_policy="transformer",
        gradient_checkpointing="non_reentrant",
        torch_dtype="bf16",
    )
    assert "packed sequences (multipack) (sample_packing in axolotl_qlora_fsdp2.yaml)" in found.not_judged


def test_llama_factory_stores_four_bit_weights_in_the_precision_of_training() -> None:
    found = example("accelerate_fsdp1.yaml", "llamafactory_qlora.yaml")
    assert says(
        found, quant="nf4", bnb_4bit_quant_storage="bf16", torch_dtype="bf16", front_end="trainer", strategy="fsdp1"
    )


def test_how_activations_are_made_again_is_each_tools_own_choice() -> None:
    assert says(
        written("base_model: x\nadapter: lora\ngradient_checkpointing: true\n"), gradient_checkpointing="reentrant"
    )
    assert says(example("llamafactory_qlora.yaml", "accelerate_ddp.yaml"), gradient_checkpointing="reentrant")
    assert says(example("llamafactory_qlora.yaml", "accelerate_fsdp2.yaml"), gradient_checkpointing="non_reentrant")
    assert says(example("trl_dora.yaml"), gradient_checkpointing="non_reentrant")
    assert says(example("trl_dora.yaml", transformers="4.56.1", trl="0.23.0"), gradient_checkpointing="reentrant")
    assert says(example("trl_dora.yaml", trl="0.21.0"), gradient_checkpointing="off")


def test_a_strategy_that_no_case_has_is_no_point() -> None:
    found = example("accelerate_deepspeed.yaml")
    assert found.options is None
    assert "DeepSpeed (deepspeed_config in accelerate_deepspeed.yaml)" in found.not_judged


def test_quotes_and_cases_of_flags_mean_the_same() -> None:
    for no in ("false", "False", "'no'", "off", '"false"'):
        found = written(f"distributed_type: FSDP\nfsdp_config:\n  fsdp_use_orig_params: {no}\n")
        assert says(found, use_orig_params=False)


def test_a_number_means_a_strategy_and_no_flag() -> None:
    found = written("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: 2\n")
    assert says(found, sharding_strategy="shard_grad_op")


def test_what_a_file_asks_for_and_no_case_has_is_named() -> None:
    found = written("model_name_or_path: x\nuse_peft: true\nuse_liger_kernel: true\noptim: lion_32bit\n")
    assert "Liger kernels (use_liger_kernel in 0.yaml)" in found.not_judged
    assert "optim: lion_32bit (in 0.yaml)" in found.not_judged


def test_keys_that_are_not_looked_at_are_named() -> None:
    found = written("model_name_or_path: x\nuse_peft: true\nlearning_rate: 1.0e-4\nsome_new_flag: true\n")
    assert found.unread == {"0.yaml": ("learning_rate", "some_new_flag")}


def test_of_an_accelerate_file_what_says_nothing_of_the_options_is_not_looked_at() -> None:
    assert example("accelerate_ddp.yaml").unread["accelerate_ddp.yaml"] == (
        *("compute_environment", "debug", "downcast_bf16", "gpu_ids", "machine_rank", "main_training_function"),
        *("num_machines", "rdzv_backend", "same_network", "tpu_env"),
    )


def test_what_no_point_has_together_is_left_out_and_named() -> None:
    hybrid = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
    found = written(hybrid, "use_peft: true\ndataset_name: x\ngradient_accumulation_steps: 8\n")
    assert says(found, device_mesh="hsdp", world_size=4, gradient_accumulation_steps=1)
    assert any(
        each.startswith("gradient_accumulation_steps=2 (the global batch has 4 rows") for each in found.not_judged
    )


def test_settings_of_fsdp_mean_nothing_where_nothing_is_sharded() -> None:
    found = written("distributed_type: MULTI_GPU\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n")
    assert says(found, strategy="ddp", device_mesh="1d", world_size=2)


def test_a_job_that_nobody_can_mean_is_no_point() -> None:
    found = written("use_peft: false\nload_in_4bit: true\nmodel_name_or_path: x\n")
    assert found.options is None
    assert any("quantised weights are not trainable" in each for each in found.not_judged)


def test_a_job_is_on_a_cpu_only_if_a_file_says_so() -> None:
    assert not example("accelerate_fsdp1.yaml").on_cpu
    assert written("distributed_type: FSDP\nuse_cpu: true\n").on_cpu


def test_two_files_of_one_kind_are_refused() -> None:
    with pytest.raises(UserError, match="both are a trainer's file; give those of one job"):
        example("trl_lora.yaml", "llamafactory_qlora.yaml")


CHECKPOINTING = ["gradient_checkpointing: true", "gradient_checkpointing_kwargs:", "  use_reentrant: false"]


@pytest.mark.parametrize(
    ("names", "wanted", "lines"),
    [
        (["accelerate_fsdp1.yaml"], {"use_orig_params": True}, ["  fsdp_use_orig_params: true  # as in the example"]),
        (["accelerate_fsdp1.yaml"], {"strategy": "fsdp2"}, ["  fsdp_version: 2"]),
        (["trl_qlora.yaml"], {"bnb_4bit_quant_storage": "bf16"}, ["bnb_4bit_quant_storage: bfloat16"]),
        (["trl_dora.yaml"], {"method": "lora"}, ["use_dora: false"]),
        (["trl_lora.yaml"], {"gradient_checkpointing": "non_reentrant"}, CHECKPOINTING),
        (["llamafactory_int8.yaml"], {"quant": "nf4"}, ["quantization_bit: 4"]),
        (["axolotl_lora_8bit_fsdp.yml"], {"use_orig_params": True}, ["  use_orig_params: true"]),
    ],
)
def test_a_change_is_said_in_the_fewest_lines(names: list[str], wanted: dict[str, Any], lines: list[str]) -> None:
    found = example(*names)
    changed = job.patched(found, wanted, NEW)
    assert changed is not None
    again, texts = changed
    assert says(again, **wanted)
    ((config, text),) = texts.items()
    new = [line for line in text.splitlines() if line not in config.text.splitlines()]
    assert new == lines


def test_what_no_file_can_say_is_not_written() -> None:
    """The wrap policy is the Trainer's own; who is launched by nobody cannot be sharded."""
    assert job.patched(example("accelerate_fsdp1.yaml", "trl_dora.yaml"), {"auto_wrap_policy": "none"}, NEW) is None
    assert job.patched(example("trl_lora.yaml"), {"autocast_adapter_dtype": False}, NEW) is None
