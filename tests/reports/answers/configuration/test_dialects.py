"""Every format is recognised, gives the values that its tool would use, and names what no cell measures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from matrix.known import findings

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.answers.configuration.job import TrainingJob

    Build = Callable[..., TrainingJob]

SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: x/y\nuse_peft: true\n"
FSDP_LAUNCHER = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
FACTORY = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
AXOLOTL = "base_model: NousResearch/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n"
ZERO3 = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}
V1 = "model: Qwen/Qwen3-4B\npeft_config:\n  name: lora\ndist_config:\n  name: fsdp2\ntrain_dataset: data/my.yaml\n"
LORA = {"peft_type": "LORA", "base_model_name_or_path": "mistralai/Mistral-7B", "r": 8, "target_modules": ["q_proj"]}


def names(combined: TrainingJob) -> list[str]:
    return [each.dialect.name for each in combined.configs]


def values(combined: TrainingJob, *options: str) -> tuple[Any, ...]:
    return tuple(combined.values.get(name) for name in options)


def features(combined: TrainingJob) -> list[str]:
    return [each.partition(" (")[0] for each in combined.forcing]


def test_a_deepspeed_file_makes_a_job_unknown(job_of: Build) -> None:
    combined = job_of({"sft.yaml": SFT + "deepspeed: zero3.json\n", "zero3.json": json.dumps(ZERO3)})
    assert names(combined) == ["TRL", "DeepSpeed"]
    assert combined.options is None
    assert "DeepSpeed ZeRO stage 3 (zero_optimization.stage in zero3.json)" in combined.forcing
    assert not any("zero3.json, which was not given" in note for note in combined.notes)


def test_a_deepspeed_file_without_zero_is_deepspeed_too(job_of: Build) -> None:
    assert job_of({"ds.json": '{"train_batch_size": 8, "fp16": {"enabled": true}}'}).forcing == ("DeepSpeed (ds.json)",)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (f"{SFT}deepspeed: ds/zero2.json\n", "ds/zero2.json"),
        (f"{SFT}fsdp: full_shard\nfsdp_config: f.json\n", "f.json"),
    ],
)
def test_a_file_that_was_not_given_is_noted(job_of: Build, text: str, missing: str) -> None:
    expected = f"sft.yaml refers to {missing}, which was not given; give it with --config as well"
    assert expected in job_of({"sft.yaml": text}).notes


def test_an_fsdp_file_belongs_to_the_trainer_that_refers_to_it(job_of: Build) -> None:
    fsdp = {"fsdp_version": 2, "transformer_layer_cls_to_wrap": ["X"], "cpu_ram_efficient_loading": True}
    combined = job_of({"a.yaml": f"{SFT}fsdp: full_shard\nfsdp_config: fsdp.json\n", "fsdp.json": json.dumps(fsdp)})
    assert values(combined, "strategy", "cpu_ram_efficient_loading") == ("fsdp2", True)
    assert combined.sources["cpu_ram_efficient_loading"].config is combined.configs[1]
    assert combined.sources["cpu_ram_efficient_loading"].keys == ("cpu_ram_efficient_loading",)
    assert combined.forcing == ()


def test_an_fsdp_file_alone_states_the_strategy(job_of: Build) -> None:
    combined = job_of({"fsdp.json": '{"fsdp_version": 1, "use_orig_params": false, "backward_prefetch": "x"}'})
    assert values(combined, "strategy", "use_orig_params") == ("fsdp1", False)


@pytest.mark.parametrize(
    ("more", "method"),
    [
        ({}, "lora"),
        ({"use_dora": True}, "dora"),
        ({"use_rslora": True}, "rslora"),
        ({"init_lora_weights": "pissa_niter_16"}, "pissa"),
        ({"init_lora_weights": "olora"}, "olora"),
        ({"peft_type": "LOKR"}, "lokr"),
        ({"peft_type": "PROMPT_TUNING"}, "prompt"),
        ({"peft_type": "BOFT"}, None),
    ],
)
def test_an_adapter_file_states_the_method(job_of: Build, more: dict[str, Any], method: str | None) -> None:
    combined = job_of({"adapter_config.json": json.dumps({**LORA, **more})})
    assert values(combined, "method", "model") == (method, "mistral")
    assert (combined.options is None) == (method is None)


def test_an_adapter_file_states_what_trains_beside_the_adapter(job_of: Build) -> None:
    adapter = {**LORA, "modules_to_save": ["lm_head"], "target_modules": ["q_proj", "embed_tokens"]}
    assert values(job_of({"a.json": json.dumps(adapter)}), "modules_to_save", "target_embeddings") == ("lm_head", True)


@pytest.mark.parametrize(
    ("more", "feature"),
    [({"init_lora_weights": "eva"}, "a start by eva"), ({"layer_replication": [[0, 2]]}, "replicated layers")],
)
def test_an_adapter_outside_the_option_space_is_unknown(job_of: Build, more: dict[str, Any], feature: str) -> None:
    assert feature in features(job_of({"a.json": json.dumps({**LORA, **more})}))


def test_an_adapter_file_completes_plain_training_arguments(job_of: Build) -> None:
    arguments = '{"output_dir": "out", "per_device_train_batch_size": 4, "bf16": true, "gradient_checkpointing": true}'
    alone = job_of({"args.json": arguments})
    assert "no adapter settings: LoRA is assumed; give adapter_config.json as well" in alone.notes
    both = job_of({"args.json": arguments, "adapter_config.json": json.dumps({**LORA, "use_dora": True})})
    assert names(both) == ["transformers", "PEFT adapter"]
    assert values(both, "method", "front_end", "amp") == ("dora", "trainer", "bf16")


def test_llama_factory_v1_states_sharding_quantisation_and_adapter_in_mappings(job_of: Build) -> None:
    combined = job_of({"v1.yaml": f"{V1}quant_config:\n  name: bnb\n  quantization_bit: 4\n"})
    assert names(combined) == ["LLaMA-Factory v1"]
    assert values(combined, "method", "quant", "strategy", "front_end") == ("lora", "nf4", "fsdp2", "loop")
    assert values(combined, "bnb_4bit_quant_storage", "mixed_precision") == ("fp16", "bf16_reduce_fp32")
    assert combined.forcing == ()


@pytest.mark.parametrize(
    ("more", "feature"),
    [
        ("cp_size: 2", "context parallelism"),
        ("batching_strategy: padding_free", "batches by padding_free"),
        ("kernel_config:\n  name: liger_kernel", "kernels: liger_kernel"),
        ("optim_config:\n  name: muon", "the optimiser muon"),
    ],
)
def test_llama_factory_v1_names_what_no_cell_measures(job_of: Build, more: str, feature: str) -> None:
    assert feature in features(job_of({"v1.yaml": f"{V1}{more}\n"}))


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        (f"{SFT}packing: true\n", "packed sequences"),
        (f"{SFT}neftune_noise_alpha: 5\n", "NEFTune, noise on the embeddings"),
        (f"{SFT}optim: galore_adamw\n", "optim: galore_adamw"),
        (f"{FACTORY}use_unsloth: true\n", "Unsloth, which replaces the model"),
        (f"{FACTORY}use_kt: true\n", "KTransformers"),
        (f"{FACTORY}quantization_bit: 4\nquantization_method: hqq\n", "quantisation by hqq"),
        (f"{FACTORY}pipeline_model_parallel_size: 2\n", "Megatron's pipeline parallelism"),
        (f"{FACTORY}loraplus_lr_ratio: 16\n", "LoRA+"),
        (FACTORY.replace("Qwen/Qwen3-4B", "x/Llama-3-8B-Instruct-GPTQ"), "a checkpoint quantised by GPTQ"),
        (FACTORY.replace("Qwen/Qwen3-4B", "Qwen/Qwen2.5-VL-7B-Instruct"), "training of images, audio or video"),
        (f"{AXOLOTL}plugins:\n- a.b.LigerPlugin\n", "plugins: a.b.LigerPlugin"),
        (f"{AXOLOTL}use_scattermoe: true\n", "kernels for mixtures of experts"),
        (f"{AXOLOTL}gradient_checkpointing: offload\n", "checkpoints offloaded"),
        (f"{AXOLOTL}fp8: true\n", "FP8"),
        ("distributed_type: FSDP\nmixed_precision: fp8\n", "FP8"),
        ("distributed_type: FSDP\nparallelism_config:\n  parallelism_config_cp_size: 2\n", "tensor, context"),
    ],
)
def test_a_feature_without_measurements_makes_a_job_unknown(job_of: Build, text: str, feature: str) -> None:
    assert any(each.startswith(feature) for each in job_of({"job.yaml": text}).forcing)


def test_ordinary_jobs_have_no_unmeasured_features(job_of: Build) -> None:
    more = "max_grad_norm: 0.3\ngradient_accumulation_steps: 8\npacking: false\noptim: paged_adamw_8bit\n"
    assert job_of({"a.yaml": FSDP_LAUNCHER, "b.yaml": SFT + more}).forcing == ()
    assert job_of({"a.yaml": FACTORY}).forcing == ()


def test_a_setting_that_another_one_disables_does_not_make_a_job_unknown(job_of: Build) -> None:
    plain = job_of({"a.yaml": f"{SFT}load_in_4bit: false\nbnb_4bit_quant_type: nf4\nbnb_4bit_quant_storage: uint8\n"})
    assert (plain.values["quant"], plain.forcing) == ("none", ())
    assert job_of({"a.yaml": FSDP_LAUNCHER.replace("type: FSDP", "type: MULTI_GPU")}).forcing == ()


def test_a_quantisation_that_no_rule_matches_makes_a_job_unknown(job_of: Build) -> None:
    combined = job_of({"a.yml": AXOLOTL.replace("qlora", "lora")})
    assert "load_in_4bit: True (in a.yml)" in combined.forcing


def test_what_changes_nothing_else_does_not_make_a_job_unknown(job_of: Build) -> None:
    combined = job_of({"a.yaml": SFT.replace("Qwen/Qwen2.5-7B", "microsoft/phi-4")})
    assert combined.forcing == ()
    assert "the architecture of microsoft/phi-4 (model_name_or_path in a.yaml)" in combined.not_judged


@pytest.mark.parametrize(
    ("text", "patch"),
    [
        ("fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", "accelerate's preparation of models for FSDP2"),
        ("fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", "FSDP2's sharding of quantised weights"),
        ("sample_packing: true\n", "attention, for packed sequences"),
        ("flash_attention: true\n", "transformers' casts for flash-attention with adapters"),
    ],
)
def test_the_patches_of_axolotl_make_a_job_unknown(job_of: Build, text: str, patch: str) -> None:
    assert f"Axolotl patches {patch}" in job_of({"a.yml": AXOLOTL + text}).forcing


def test_axolotl_on_one_process_patches_nothing_that_matters(job_of: Build) -> None:
    assert not any("patches" in each for each in job_of({"a.yml": f"{AXOLOTL}sdp_attention: true\n"}).forcing)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (FSDP_LAUNCHER, json.dumps(ZERO3), "a.yaml requests FSDP and b.yaml DeepSpeed; give the files of one job"),
        (f"{SFT}use_dora: true\n", json.dumps(LORA), "b.yaml describes method=lora and a.yaml method=dora"),
        (json.dumps(ZERO3), json.dumps(ZERO3), "both are engine files; give one of them"),
        (json.dumps(LORA), json.dumps(LORA), "both are adapter files; give one of them"),
    ],
)
def test_files_that_contradict_each_other_are_refused(job_of: Build, first: str, second: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        job_of({"a.yaml": first, "b.yaml": second})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is an empty mapping"),
        ("", "is empty"),
        ('{"zero_optimization": {"stage": 3,\n', "the JSON ends before its last bracket"),
        ('{"zero_optimization": {"sta', "the JSON ends before its last bracket"),
    ],
)
def test_an_empty_or_cut_file_is_refused_in_one_sentence(job_of: Build, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        job_of({"ds.json": text})
    assert "\n" not in str(error.value)


def test_json_may_indent_by_tabs(job_of: Build) -> None:
    assert names(job_of({"ds.json": json.dumps(ZERO3, indent="\t")})) == ["DeepSpeed"]


def test_an_unset_compiler_backend_is_off(job_of: Build) -> None:
    text = f"{FSDP_LAUNCHER}dynamo_config:\n  dynamo_backend: 'NO'\n"
    assert values(job_of({"a.yaml": text}), "torch_compile") == (False,)


AXOLOTL_BATCH = "base_model: x/llama\nadapter: lora\nbf16: true\nmicro_batch_size: {micro}\n{more}\n"


@pytest.mark.parametrize(
    ("micro", "more", "steps"),
    [
        (1, "batch_size: 8", 2),
        (8, "batch_size: 8", 1),
        (1, "gradient_accumulation_steps: 4", 2),
        (1, "gradient_accumulation_steps: 1\nbatch_size: 8", 1),
        (1, "", 1),
    ],
)
def test_the_batch_of_an_update_tells_if_axolotl_accumulates(job_of: Build, micro: int, more: str, steps: int) -> None:
    combined = job_of({"a.yaml": AXOLOTL_BATCH.format(micro=micro, more=more)})
    assert combined.options is not None
    assert combined.options.gradient_accumulation_steps == steps


@pytest.mark.parametrize(("mapping", "spreads"), [("auto", True), ("balanced", True), ("cuda", False)])
def test_a_device_map_may_spread_a_model(job_of: Build, mapping: str, *, spreads: bool) -> None:
    combined = job_of({"a.yaml": AXOLOTL_BATCH.format(micro=1, more=f"device_map: {mapping}")})
    assert bool(combined.forcing) is spreads


@pytest.mark.parametrize(("model", "unknown"), [("x/llama-7b", False), ("replit/replit-code", True)])
def test_the_code_of_a_models_repository_leaves_the_job_unknown(job_of: Build, model: str, *, unknown: bool) -> None:
    text = AXOLOTL_BATCH.format(micro=1, more="trust_remote_code: true").replace("x/llama", model)
    assert bool(job_of({"a.yaml": text}).forcing) is unknown


def test_the_state_dict_of_a_checkpoint_belongs_to_the_job(job_of: Build) -> None:
    text = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
    combined = job_of({"a.yaml": text})
    assert combined.options is not None
    assert combined.options.state_dict_type == "sharded"
    assert combined.options.but(flow="save_reload").stated["state_dict_type"] == "sharded"


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("base_model: x/llama\nadapter: lora\n", True),
        ("finetuning_type: lora\nstage: sft\n", True),
        ("finetuning_type: full\nstage: sft\n", False),
        ("dataset_name: x/y\nuse_peft: true\n", False),
    ],
)
def test_a_tool_may_correct_an_error_of_a_library_itself(job_of: Build, text: str, *, corrected: bool) -> None:
    found = job_of({"a.yaml": text}).corrected
    assert (found == ("trainer-accumulation-doubles",)) is corrected
    assert set(found) <= {row.id for row in findings.load()}


@pytest.mark.parametrize("key", ["use_flash_attn", "use_flash_attention_2"])
def test_former_keys_request_flash_attention(job_of: Build, key: str) -> None:
    combined = job_of({"a.yaml": f"dataset_name: x/y\nuse_peft: true\n{key}: true\n"})
    assert combined.values["attn_implementation"] == "flash_attention_2"


@pytest.mark.parametrize(
    ("model", "read"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen"),
        ("Qwen/Qwen1.5-MoE-A2.7B", ""),
        ("Qwen/Qwen3-30B-A3B", ""),
        ("Qwen/Qwen3-Next-80B-A3B", ""),
        ("Qwen/Qwen2-VL-7B", ""),
        ("mistralai/Mistral-7B-v0.3", "mistral"),
        ("mistralai/Mistral-Small-3.1-24B", ""),
        ("google/gemma-2-9b", "gemma"),
        ("google/gemma-2b", ""),
    ],
)
def test_only_names_of_measured_architectures_are_read_as_such(job_of: Build, model: str, read: str) -> None:
    text = AXOLOTL_BATCH.format(micro=1, more="").replace("x/llama", model)
    combined = job_of({"a.yaml": text})
    assert combined.values.get("model", "") == read
    assert any(f"the architecture of {model}" in each for each in combined.not_judged) is not bool(read)


@pytest.mark.parametrize(("model", "known"), [("meta-llama/Llama-3.1-8B", True), ("meta-llama/Llama-4-Scout", False)])
def test_llamas_of_another_architecture_are_not_measured(job_of: Build, model: str, *, known: bool) -> None:
    combined = job_of({"a.yaml": AXOLOTL_BATCH.format(micro=1, more="").replace("x/llama", model)})
    assert any(f"the architecture of {model}" in each for each in combined.not_judged) is not known


def test_frameworks_train_by_a_trainer_of_their_own(job_of: Build) -> None:
    assert job_of({"a.yaml": AXOLOTL_BATCH.format(micro=1, more="")}).own_trainer
    assert not job_of({"a.yaml": "dataset_name: x/y\nuse_peft: true\n"}).own_trainer
