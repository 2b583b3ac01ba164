"""Tables of settings that no cell measures, by the tool that reads them."""

from __future__ import annotations

from typing import Final

from reports.answers.configuration.dialects import Containing, Excluding, UnmeasuredSetting

MULTIMODAL: Final = "training of images, audio or video"
EXPERTS: Final = "kernels for mixtures of experts"
PACKING: Final = "packed sequences"


def unmeasured(*rows: tuple[str, str]) -> tuple[UnmeasuredSetting, ...]:
    """Return the settings of rows that consist of a key and the feature that it enables."""
    return tuple(UnmeasuredSetting(key, feature) for key, feature in rows)


def not_looked_at(*rows: tuple[str, str]) -> tuple[UnmeasuredSetting, ...]:
    """Return settings that no cell measures, but that do not change what the other settings do."""
    return tuple(UnmeasuredSetting(key, feature, forces=False) for key, feature in rows)


# Names of model repositories by the format of their weights, as their publishers write them.
QUANTISED_CHECKPOINTS: Final = (
    *(("gptq", "GPTQ"), ("awq", "AWQ"), ("aqlm", "AQLM"), ("hqq", "HQQ"), ("eetq", "EETQ"), ("-fp8", "FP8")),
    *(("nvfp4", "NVFP4"), ("mxfp4", "MXFP4"), ("gpt-oss", "MXFP4"), ("bnb-4bit", "bitsandbytes"), ("gguf", "GGUF")),
)


def model_rows(key: str) -> tuple[UnmeasuredSetting, ...]:
    """Return the settings that follow from the name of a model."""
    return (
        *(
            UnmeasuredSetting(key, f"a checkpoint quantised by {name}", Containing(w))
            for w, name in QUANTISED_CHECKPOINTS
        ),
        *(
            UnmeasuredSetting(key, MULTIMODAL, Containing(word))
            for word in ("-vl-", "llava", "-vision", "pixtral", "qwen2-audio", "-omni", "voxtral", "smolvlm", "idefics")
        ),
    )


# A device map with one of these words may spread the layers of a model over several devices.
SPREADING: Final = ("auto", "balanced", "balanced_low_0", "sequential")
SPREAD: Final = "a model that a device map spreads over devices"

TRANSFORMERS_ROWS: Final = (
    UnmeasuredSetting("device_map", SPREAD, SPREADING),
    *unmeasured(
        ("deepspeed", "DeepSpeed"),
        ("parallelism_config", "tensor, context or sequence parallelism"),
        ("tp_size", "tensor parallelism"),
        ("fp8", "FP8"),
        ("torchao", "quantisation by torchao"),
        ("use_liger_kernel", "Liger kernels"),
        ("use_liger_loss", "Liger kernels"),
        ("use_liger_lm_head", "Liger kernels"),
        ("use_unsloth", "Unsloth"),
        ("neftune_noise_alpha", "NEFTune, noise on the embeddings"),
        ("optim_target_modules", "an optimiser of selected modules, such as GaLore or APOLLO"),
        ("loraplus_lr_ratio", "LoRA+"),
        ("group_by_modality_length", MULTIMODAL),
        ("tpu_num_cores", "TPUs"),
        ("use_mps_device", "Apple GPUs"),
        ("fsdp_config.xla", "FSDP on TPUs"),
        ("use_ipex", "Intel's extension"),
    ),
    UnmeasuredSetting("quantization_config.quant_method", "quantisation by {value}", Excluding(("bitsandbytes",))),
    *not_looked_at(
        ("auto_find_batch_size", "a search for the batch size"),
        ("torch_compile_mode", "a mode of torch.compile"),
        ("fsdp_config.forward_prefetch", "prefetching of the next unit"),
        ("fsdp_config.fsdp_forward_prefetch", "prefetching of the next unit"),
        ("fsdp_config.limit_all_gathers", "a limit of all-gathers"),
    ),
    *model_rows("model_name_or_path"),
)

TRL_ROWS: Final = (
    *TRANSFORMERS_ROWS,
    *unmeasured(
        ("packing", PACKING),
        ("padding_free", "batches without padding"),
        ("activation_offloading", "activations offloaded to the CPU"),
        ("lora_target_parameters", "LoRA on parameters, as of mixtures of experts"),
        ("use_loftq", "LoftQ by a script's own code"),
        ("use_vllm", "generation by vLLM"),
        ("model_init_kwargs.quantization_config", "a quantisation of the script's own"),
    ),
    UnmeasuredSetting("loss_type", "the loss {value}", ("dft", "chunked_nll")),
)

LLAMAFACTORY_ROWS: Final = (
    *TRANSFORMERS_ROWS,
    UnmeasuredSetting("quantization_method", "quantisation by {value}"),
    UnmeasuredSetting("tensor_model_parallel_size", "Megatron's tensor parallelism"),
    UnmeasuredSetting("pipeline_model_parallel_size", "Megatron's pipeline parallelism"),
    UnmeasuredSetting("expert_model_parallel_size", "Megatron's expert parallelism"),
    UnmeasuredSetting("context_parallel_size", "Megatron's context parallelism"),
    *unmeasured(
        ("use_mca", "Megatron"),
        ("use_megatron_bridge", "Megatron"),
        ("use_distributed_optimizer", "Megatron"),
        ("sequence_parallel", "sequence parallelism"),
        ("use_hyper_parallel", "HyperParallel"),
        ("use_unsloth", "Unsloth, which replaces the model"),
        ("use_unsloth_gc", "Unsloth's gradient checkpointing"),
        ("enable_liger_kernel", "Liger kernels, which replace parts of the model"),
        ("use_kt", "KTransformers"),
        ("use_v1_kernels", "kernels of LLaMA-Factory"),
        ("use_galore", "GaLore"),
        ("use_apollo", "APOLLO"),
        ("use_badam", "BAdam"),
        ("use_adam_mini", "Adam-mini"),
        ("use_muon", "Muon"),
        ("use_llama_pro", "LLaMA Pro"),
        ("use_dft_loss", "the DFT loss"),
        ("use_asft_loss", "the ASFT loss"),
        ("use_eaft_loss", "the EAFT loss"),
        ("mixture_of_depths", "mixture of depths"),
        ("shift_attn", "LongLoRA's shifted attention"),
        ("neat_packing", PACKING),
        ("packing", PACKING),
        ("predict_with_generate", "generation during evaluation"),
        ("image_max_pixels", MULTIMODAL),
        ("video_max_pixels", MULTIMODAL),
        ("freeze_vision_tower", MULTIMODAL),
        ("freeze_multi_modal_projector", MULTIMODAL),
        ("ray_run_name", "Ray"),
        ("ray_num_workers", "Ray"),
    ),
    *not_looked_at(
        ("rope_scaling", "scaling of rotary positions"),
        ("resize_vocab", "a resized vocabulary"),
        ("new_special_tokens_config", "new tokens"),
        ("upcast_layernorm", "layer norms in float32"),
        ("upcast_lmhead_output", "an output head in float32"),
        ("moe_aux_loss_coef", "the loss of a router"),
        ("pissa_convert", "a conversion of PiSSA"),
        ("train_from_scratch", "weights without training"),
        ("create_new_adapter", "a new adapter on a merged one"),
    ),
)

AXOLOTL_ROWS: Final = (
    UnmeasuredSetting("device_map", SPREAD, SPREADING),
    *unmeasured(
        ("deepspeed", "DeepSpeed"),
        ("tensor_parallel_size", "tensor parallelism"),
        ("context_parallel_size", "context parallelism"),
        ("sequence_parallel_degree", "sequence parallelism"),
        ("expert_parallel_size", "expert parallelism"),
        ("dp_replicate_size", "hybrid sharding by a device mesh"),
        ("fp8", "FP8"),
        ("sample_packing", "packed sequences (multipack)"),
        ("batch_flattening", "batches without padding"),
        ("plugins", "plugins: {value}"),
        ("lora_mlp_kernel", "Axolotl's LoRA kernels"),
        ("lora_qkv_kernel", "Axolotl's LoRA kernels"),
        ("lora_o_kernel", "Axolotl's LoRA kernels"),
        ("lora_embedding_kernel", "Axolotl's LoRA kernels"),
        ("unsloth_cross_entropy_loss", "Unsloth"),
        ("unsloth_lora_mlp", "Unsloth"),
        ("unsloth_lora_qkv", "Unsloth"),
        ("unsloth_lora_o", "Unsloth"),
        ("relora", "ReLoRA"),
        ("relora_steps", "ReLoRA"),
        ("loraplus_lr_ratio", "LoRA+"),
        ("gptq", "a GPTQ checkpoint"),
        ("model_quantization_config", "quantisation by {value}"),
        ("use_onebitllms", "weights of one bit"),
        ("peft.backend", "quantisation by another backend"),
        ("qat", "quantisation-aware training"),
        ("quantize_moe_experts", EXPERTS),
        ("use_scattermoe", EXPERTS),
        ("use_sonicmoe", EXPERTS),
        ("experts_implementation", EXPERTS),
        ("llama4_linearized_experts", EXPERTS),
        ("lora_target_parameters", "LoRA on parameters, as of mixtures of experts"),
        ("unfrozen_parameters", "parameters unfrozen by name"),
        ("layer_offloading", "layers offloaded to the CPU"),
        ("activation_offloading", "activations offloaded to the CPU"),
        ("selective_checkpointing", "selective checkpointing"),
        ("tiled_mlp", "tiled layers"),
        ("chunked_cross_entropy", "a chunked loss"),
        ("use_eaft", "the EAFT loss"),
        ("scaling_softmax", "a scaled softmax"),
        ("use_kernels", "kernels of the hub"),
        ("fused_attn_kernel", "fused attention kernels"),
        ("flash_attn_fuse_mlp", "fused layers"),
        ("flash_attn_cross_entropy", "flash-attention's loss"),
        ("liger_rope", "Liger kernels"),
        ("liger_rms_norm", "Liger kernels"),
        ("liger_glu_activation", "Liger kernels"),
        ("liger_layer_norm", "Liger kernels"),
        ("liger_fused_linear_cross_entropy", "Liger kernels"),
        ("cut_cross_entropy", "a cut loss"),
        ("xformers_attention", "attention by xFormers"),
        ("flex_attention", "flex attention"),
        ("sage_attention", "SageAttention"),
        ("s2_attention", "LongLoRA's shifted attention"),
        ("noisy_embedding_alpha", "NEFTune, noise on the embeddings"),
        ("neftune_noise_alpha", "NEFTune, noise on the embeddings"),
        ("use_pose", "PoSE"),
        ("use_ray", "Ray"),
        ("trainer_cls", "a custom trainer"),
        ("deepcompile", "DeepCompile"),
        ("processor_type", MULTIMODAL),
        ("optim_target_modules", "an optimiser of selected modules, such as GaLore or APOLLO"),
    ),
    UnmeasuredSetting(
        "gradient_checkpointing", "checkpoints offloaded ({value})", ("offload", "offload_disk", "unsloth")
    ),
    *not_looked_at(
        ("embeddings_skip_upcast", "embeddings in half precision"),
        ("resize_token_embeddings_to_32x", "resized embeddings"),
        ("peft_layers_to_transform", "an adapter on some layers"),
        ("peft_trainable_token_indices", "trained tokens"),
        ("tokens", "new tokens"),
        ("fix_untrained_tokens", "tokens without training"),
        ("tf32", "TF32"),
    ),
    *model_rows("base_model"),
)

ACCELERATE_ROWS: Final = (
    *unmeasured(
        ("deepspeed_config", "DeepSpeed"),
        ("megatron_lm_config", "Megatron-LM"),
        ("parallelism_config", "tensor, context or sequence parallelism"),
        ("fp8_config", "FP8"),
        ("tpu_use_cluster", "TPUs"),
        ("use_kt", "KTransformers"),
        ("ipex_config", "Intel's extension"),
        ("mpirun_config", "MPI"),
        ("kt_config", "KTransformers"),
    ),
    UnmeasuredSetting("distributed_type", "DeepSpeed", "DEEPSPEED"),
    UnmeasuredSetting("distributed_type", "Megatron-LM", "MEGATRON_LM"),
    UnmeasuredSetting("distributed_type", "TPUs", ("TPU", "XLA")),
    UnmeasuredSetting("mixed_precision", "FP8", "fp8"),
    *not_looked_at(("fsdp_config.fsdp_forward_prefetch", "prefetching of the next unit")),
)
