"""Configuration files combine into one point of the option space, and change with it."""

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
    return job.combine([each for name in names for each in configs.read(EXAMPLES / name)], {**NEW, **versions})


def job_of(*texts: str, **versions: str) -> job.TrainingJob:
    files = [configs.parse(text, Path(f"{number}.yaml")) for number, text in enumerate(texts)]
    return job.combine(files, {**NEW, **versions})


def options(combined: job.TrainingJob) -> Options:
    assert combined.options is not None
    assert combined.options.why_illegal == ""
    return combined.options


def has_options(combined: job.TrainingJob, **wanted: Any) -> bool:
    point = options(combined)
    return {name: getattr(point, name) for name in wanted} == wanted


def test_an_accelerate_file_sets_the_sharding() -> None:
    combined = example("accelerate_fsdp1.yaml")
    assert has_options(
        combined, strategy="fsdp1", use_orig_params=False, auto_wrap_policy="transformer", sync_module_states=True
    )
    assert has_options(combined, front_end="accelerate", method="lora")
    assert "LoRA is assumed" in combined.notes[0]


def test_fsdp_version_2_is_fsdp2() -> None:
    assert has_options(example("accelerate_fsdp2.yaml"), strategy="fsdp2", reshard_after_forward=True)


def test_a_trainer_file_and_a_launcher_file_combine() -> None:
    combined = example("accelerate_fsdp1.yaml", "trl_qlora.yaml")
    assert has_options(combined, quant="nf4", method="lora", torch_dtype="bf16", front_end="sft", model="mistral")
    assert has_options(combined, strategy="fsdp1", use_orig_params=False)
    assert combined.notes == ()


def test_a_job_without_a_launcher_file_assumes_one_process() -> None:
    combined = example("trl_lora.yaml")
    assert has_options(combined, strategy="single", world_size=1)
    assert "one process is assumed" in combined.notes[0]


def test_the_trainer_replaces_the_wrap_policy_by_that_of_peft() -> None:
    both = ("accelerate_fsdp1.yaml", "trl_dora.yaml")
    assert has_options(example(*both), auto_wrap_policy="peft", method="dora")
    assert has_options(example(*both, transformers="4.38.0"), auto_wrap_policy="transformer")


def test_the_storage_of_four_bit_weights_depends_on_the_release_of_trl() -> None:
    """It followed the load dtype until TRL added a key for it."""
    both = ("accelerate_fsdp1.yaml", "trl_qlora.yaml")
    assert has_options(example(*both, trl="0.23.0"), bnb_4bit_quant_storage="bf16")
    assert has_options(example(*both, trl="0.26.1"), bnb_4bit_quant_storage="uint8")


def test_axolotl_stores_four_bit_weights_in_bfloat16_by_default() -> None:
    combined = example("axolotl_qlora_fsdp.yml", transformers="4.44.2")
    assert has_options(
        combined,
        quant="nf4",
        bnb_4bit_quant_storage="bf16",
        bnb_4bit_use_double_quant=True,
        strategy="fsdp1",
        auto_wrap_policy="peft",
    )
    assert has_options(
        combined,
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
        ("4.57.3", "2", "fsdp1"),  # this release ignores the key
        ("5.0.0", "2", "fsdp2"),
        ("5.23.0", "1", "fsdp1"),
    ],
)
def test_the_default_fsdp_version_of_the_trainer_depends_on_its_release(
    transformers: str, values: str, strategy: str
) -> None:
    version = f"\nfsdp_config:\n  version: {values}\n" if values else "\n"
    combined = job_of(f"use_peft: true\nfsdp: full_shard auto_wrap{version}", transformers=transformers)
    assert has_options(combined, strategy=strategy, auto_wrap_policy="peft" if strategy == "fsdp1" else "transformer")


@pytest.mark.parametrize(("accelerate", "original"), [("0.24.1", False), ("0.25.0", True), ("1.15.0", True)])
def test_the_defaults_of_accelerate_depend_on_its_release(accelerate: str, *, original: bool) -> None:
    combined = job_of("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n", accelerate=accelerate)
    assert has_options(combined, use_orig_params=original, sync_module_states=True, auto_wrap_policy="none")


def test_fsdp_defaults_of_a_trainer_do_not_override_those_of_the_launcher() -> None:
    combined = job_of("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n", "adapter: lora\nbase_model: x\n")
    assert has_options(combined, strategy="fsdp1", front_end="trainer", use_orig_params=True)
    assert combined.sources["use_orig_params"].config is combined.configs[0]


def test_the_fsdp_argument_of_the_trainer_sets_the_sharding() -> None:
    combined = job_of("use_peft: false\nfsdp: shard_grad_op auto_wrap offload\nfsdp_config:\n  version: 1\n")
    assert has_options(
        combined,
        strategy="fsdp1",
        sharding_strategy="shard_grad_op",
        cpu_offload=True,
        auto_wrap_policy="transformer",
        method="full",
    )


def test_axolotl_has_a_top_level_key_for_the_fsdp_version() -> None:
    combined = example("axolotl_qlora_fsdp2.yaml")
    assert has_options(
        combined,
        strategy="fsdp2",
        auto_wrap_policy="transformer",
        gradient_checkpointing="non_reentrant",
        torch_dtype="bf16",
    )
    assert "packed sequences (multipack) (sample_packing in axolotl_qlora_fsdp2.yaml)" in combined.forcing


def test_llama_factory_stores_four_bit_weights_in_the_precision_of_training() -> None:
    combined = example("accelerate_fsdp1.yaml", "llamafactory_qlora.yaml")
    assert has_options(
        combined, quant="nf4", bnb_4bit_quant_storage="bf16", torch_dtype="bf16", front_end="trainer", strategy="fsdp1"
    )


def test_each_tool_has_its_own_default_for_gradient_checkpointing() -> None:
    assert has_options(
        job_of("base_model: x\nadapter: lora\ngradient_checkpointing: true\n"), gradient_checkpointing="reentrant"
    )
    assert has_options(example("llamafactory_qlora.yaml", "accelerate_ddp.yaml"), gradient_checkpointing="reentrant")
    assert has_options(
        example("llamafactory_qlora.yaml", "accelerate_fsdp2.yaml"), gradient_checkpointing="non_reentrant"
    )
    assert has_options(example("trl_dora.yaml"), gradient_checkpointing="non_reentrant")
    assert has_options(
        example("trl_dora.yaml", transformers="4.56.1", trl="0.23.0"), gradient_checkpointing="reentrant"
    )
    assert has_options(example("trl_dora.yaml", trl="0.21.0"), gradient_checkpointing="off")


def test_a_job_with_an_unmeasured_strategy_has_no_options() -> None:
    combined = example("accelerate_deepspeed.yaml")
    assert combined.options is None
    assert "DeepSpeed (deepspeed_config in accelerate_deepspeed.yaml)" in combined.forcing


def test_quotes_and_case_of_flags_do_not_matter() -> None:
    for no in ("false", "False", "'no'", "off", '"false"'):
        combined = job_of(f"distributed_type: FSDP\nfsdp_config:\n  fsdp_use_orig_params: {no}\n")
        assert has_options(combined, use_orig_params=False)


def test_a_sharding_strategy_can_be_a_number() -> None:
    combined = job_of("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: 2\n")
    assert has_options(combined, sharding_strategy="shard_grad_op")


def test_settings_that_no_case_measures_are_listed() -> None:
    combined = job_of("model_name_or_path: x\nuse_peft: true\nuse_liger_kernel: true\noptim: lion_32bit\n")
    assert "Liger kernels (use_liger_kernel in 0.yaml)" in combined.forcing
    assert "optim: lion_32bit (in 0.yaml)" in combined.forcing


def test_keys_without_a_rule_are_listed() -> None:
    combined = job_of("model_name_or_path: x\nuse_peft: true\nlearning_rate: 1.0e-4\nsome_new_flag: true\n")
    assert combined.unread == {"0.yaml": ("learning_rate", "some_new_flag")}


def test_keys_of_an_accelerate_file_outside_the_option_space_are_unread() -> None:
    assert example("accelerate_ddp.yaml").unread["accelerate_ddp.yaml"] == (
        *("compute_environment", "debug", "downcast_bf16", "gpu_ids", "machine_rank", "main_training_function"),
        *("num_machines", "rdzv_backend", "same_network", "tpu_env"),
    )


def test_settings_that_exclude_each_other_are_dropped_and_listed() -> None:
    hybrid = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
    combined = job_of(hybrid, "use_peft: true\ndataset_name: x\ngradient_accumulation_steps: 8\n")
    assert has_options(combined, device_mesh="hsdp", world_size=4, gradient_accumulation_steps=1)
    assert any(
        each.startswith("gradient_accumulation_steps=2 (the global batch has 4 rows") for each in combined.not_judged
    )


def test_fsdp_settings_do_not_apply_to_ddp() -> None:
    combined = job_of("distributed_type: MULTI_GPU\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n")
    assert has_options(combined, strategy="ddp", device_mesh="1d", world_size=2)


def test_full_training_of_quantised_weights_has_no_options() -> None:
    combined = job_of("use_peft: false\nload_in_4bit: true\nmodel_name_or_path: x\n")
    assert combined.options is None
    assert any("quantised weights are not trainable" in each for each in combined.not_judged)


def test_a_job_runs_on_a_cpu_only_if_a_file_requests_it() -> None:
    assert not example("accelerate_fsdp1.yaml").on_cpu
    assert job_of("distributed_type: FSDP\nuse_cpu: true\n").on_cpu


def test_two_files_of_one_role_are_refused() -> None:
    with pytest.raises(UserError, match="both are trainer files; give one of them"):
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
def test_a_patch_changes_the_fewest_lines(names: list[str], wanted: dict[str, Any], lines: list[str]) -> None:
    combined = example(*names)
    changed = job.patch(combined, wanted, NEW)
    assert changed is not None
    patched, texts = changed
    assert has_options(patched, **wanted)
    ((config, text),) = texts.items()
    new = [line for line in text.splitlines() if line not in config.text.splitlines()]
    assert new == lines


def test_a_value_that_no_file_can_express_has_no_patch() -> None:
    """The Trainer sets the wrap policy itself, and no key of TRL sets ``autocast_adapter_dtype``."""
    assert job.patch(example("accelerate_fsdp1.yaml", "trl_dora.yaml"), {"auto_wrap_policy": "none"}, NEW) is None
    assert job.patch(example("trl_lora.yaml"), {"autocast_adapter_dtype": False}, NEW) is None
