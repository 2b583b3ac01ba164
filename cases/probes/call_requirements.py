"""The requirements that only calls name: what a version of a package does not offer yet, or offers no more."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cases.probes import (
    adapters,
    alignment,
    arithmetic,
    bitsandbytes,
    data,
    distributed,
    functions,
    libraries,
    low_precision,
    offers,
)
from cases.probes.requirement import Requirement

if TYPE_CHECKING:
    from cases.space.options import Options


def only_calls(_options: Options) -> bool:
    """Never: only calls name these requirements."""
    return False


CALL_REQUIREMENTS = (
    *(Requirement(name, only_calls, probe, because) for name, (probe, because) in data.OFFERS.items()),
    *(Requirement(name, only_calls, probe, because) for name, (probe, because) in functions.LATER.items()),
    *(Requirement(name, only_calls, probe, because) for name, (probe, because) in offers.OFFERS.items()),
    Requirement("activated_lora", only_calls, libraries.activated_lora_option, "this peft has no activated LoRA"),
    Requirement(
        "target_parameters", only_calls, libraries.target_parameters_option, "this stack has no LoRA on fused experts"
    ),
    Requirement(
        "adamw_8bit_step",
        only_calls,
        bitsandbytes.adamw_8bit_step,
        "8-bit optimisers need a GPU in this bitsandbytes",
        cpu_only=True,
    ),
    Requirement("all_on_disk", only_calls, libraries.all_on_disk, "this accelerate dispatches no whole model to disk"),
    *(
        Requirement(
            name.lower(), only_calls, partial(arithmetic.torch_optimiser, name=name), f"this torch has no {name}"
        )
        for name in ("Adafactor", "Muon")
    ),
    Requirement(
        "plateaus_of_new_groups",
        only_calls,
        arithmetic.plateaus_of_new_groups,
        "ReduceLROnPlateau of this torch knows no groups that came later",
    ),
    Requirement("another_device", only_calls, arithmetic.another_device, "the case needs two devices", cpu_only=True),
    Requirement("gpu_memory", only_calls, arithmetic.gpu_memory, "the case measures GPU memory", cpu_only=True),
    Requirement(
        "gpu_of_each_rank", only_calls, arithmetic.gpu_of_each_rank, "the case needs several GPUs", shared_only=True
    ),
    Requirement("bitsandbytes_4bit", only_calls, bitsandbytes.four_bit_class, "this bitsandbytes has no 4-bit layers"),
    Requirement("blocks_of_32", only_calls, bitsandbytes.small_blocks, "this bitsandbytes has no blocks of 32"),
    Requirement(
        "four_bit_parts", only_calls, bitsandbytes.four_bit_parts, "parts of 4-bit weights are plain tensors here"
    ),
    Requirement(
        "fake_kernels", only_calls, bitsandbytes.fake_kernels, "this bitsandbytes registers no operations with torch"
    ),
    *(Requirement(name, only_calls, probe, because) for name, (probe, because) in low_precision.ANYWHERE.items()),
    Requirement("fp8_gpu", only_calls, low_precision.fp8_gpu, "FP8 weights are made and multiplied on a GPU"),
    Requirement(
        "float8_gather", only_calls, low_precision.float8_gather, "this torch gathers no float8 tensors here", 2
    ),
    Requirement("llama4", only_calls, libraries.llama4, "this transformers has no Llama 4"),
    Requirement("runtime_config", only_calls, libraries.runtime_option, "this peft has no runtime_config"),
    Requirement(
        "cpu_scaler", only_calls, arithmetic.cpu_scaler, "this torch scales gradients on GPUs only", cpu_only=True
    ),
    *(
        Requirement(
            name,
            only_calls,
            partial(libraries.training_argument, name=argument),
            "this transformers lacks the argument",
        )
        for name, argument in (
            ("tokens_across_devices", "average_tokens_across_devices"),
            ("include_for_metrics", "include_for_metrics"),
            ("batch_eval_metrics", "batch_eval_metrics"),
            ("sampling_strategy", "train_sampling_strategy"),
            ("accelerator_config", "accelerator_config"),
            ("callback_states", "restore_callback_states_from_checkpoint"),
        )
    ),
    Requirement(
        "fused_optimisers",
        only_calls,
        partial(arithmetic.fused_step, rule="Adagrad"),  # the last one that torch fused
        "this torch does not fuse all of its optimisers for the device",
    ),
    Requirement("sft_config", only_calls, libraries.sft_config, "this trl has no SFTConfig"),
    Requirement(
        "non_padding_tokens", only_calls, libraries.non_padding_tokens, "this transformers counts padding as tokens"
    ),
    Requirement(
        "schedule_stable",
        only_calls,
        partial(libraries.schedule, name="WARMUP_STABLE_DECAY"),
        "this transformers lacks the schedule",
    ),
    Requirement(
        "schedule_cosine_min",
        only_calls,
        partial(libraries.schedule, name="COSINE_WITH_MIN_LR"),
        "this transformers lacks the schedule",
    ),
    Requirement("lora_bias", only_calls, libraries.lora_bias_option, "this peft has no biases in adapters"),
    *(Requirement(name, only_calls, probe, because) for name, (probe, because) in adapters.PROBES.items()),
    *(Requirement(name, only_calls, probe, because, 2) for name, (probe, because) in distributed.PARTS.items()),
    *(Requirement(name, only_calls, probe, because) for name, (probe, because) in distributed.ONE_RANK.items()),
    Requirement(
        "broadcasting_reader",
        only_calls,
        distributed.broadcasting_reader,
        "BroadcastingTorchSaveReader needs a GPU in this torch",
        cpu_only=True,
    ),
    *(
        Requirement(f"lora_{name}", only_calls, partial(libraries.lora_start, name=name), "this peft lacks the start")
        for name in ("orthogonal", "mica")
    ),
    *(
        Requirement(
            f"peft_{name}", only_calls, partial(libraries.peft_config, name=name), "this peft does not have the method"
        )
        for name in (
            "CPTConfig",
            "HRAConfig",
            "MissConfig",
            "PveraConfig",
            "RandLoraConfig",
            "UniLoraConfig",
            "TinyLoraConfig",
            "HiraConfig",
            "PsoftConfig",
            "OSFConfig",
            "LilyConfig",
            "SupertuningConfig",
            "FourierFTConfig",
            "BoneConfig",
            "VBLoRAConfig",
            "ShiraConfig",
            "C3AConfig",
            "RoadConfig",
            "DeloraConfig",
        )
    ),
    Requirement("skew_oft", only_calls, libraries.skew_oft, "this peft's OFT trains whole blocks"),
    Requirement(
        "vera_of_two_sizes", only_calls, libraries.vera_of_two_sizes, "this peft's VeRA adapts layers of one size alone"
    ),
    *(
        Requirement(
            f"scaled_positions_{name}",
            only_calls,
            partial(libraries.scaled_positions, model=name),
            "this transformers does not scale the rotary positions of the model",
        )
        for name in ("qwen", "qwen3", "mistral", "mixtral", "gemma")
    ),
    Requirement("rope_parameters", only_calls, libraries.rope_parameters, "this transformers has no rope_parameters"),
    Requirement(
        "experts_implementation",
        only_calls,
        libraries.experts_implementation,
        "this transformers has one implementation of experts",
    ),
    Requirement(
        "prefilled_embeddings",
        only_calls,
        libraries.prefilled_embeddings,
        "this transformers continues a cache from tokens alone",
    ),
    Requirement(
        "mean_resizing", only_calls, libraries.mean_resizing, "this transformers starts new rows without the old ones"
    ),
    Requirement(
        "layered_caches", only_calls, libraries.layered_caches, "this transformers has other caches for this model"
    ),
    *(
        Requirement(
            name, only_calls, partial(libraries.generation_setting, name=name), f"this transformers has no {name}"
        )
        for name in ("min_p", "top_h")
    ),
    *(Requirement(name, only_calls, probe, because) for name, (probe, because) in alignment.REQUIRED.items()),
)
