"""The requirements of cases: what a case needs of a version or a machine, and the probe that finds it missing.

A version that lacks an option, or a machine that cannot run a strategy at all, makes a ``skip``. A probe exercises only
the feature itself (one linear layer), never the combination that a case measures, so it cannot hide a finding.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cases import api
from cases.apply.attention import BACK_ENDS, implementation
from cases.model import architectures
from cases.probes import arithmetic, bitsandbytes, libraries, sharding
from cases.probes.call_requirements import CALL_REQUIREMENTS
from cases.probes.requirement import Requirement
from cases.space import devices
from cases.space.options import FOUR_BIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.probes.requirement import Probe
    from cases.space.options import Options


def applicable(options: Options, device: str) -> list[Requirement]:
    named = api.requirements(options.call)
    meant = [requirement for requirement in REQUIREMENTS if requirement.when(options) or requirement.name in named]
    return [found for each in meant if (found := on_device(each, device)) is not None]


def on_device(requirement: Requirement, device: str) -> Requirement | None:
    """The requirement as a cell on this device has it; None if the device cannot lack it.

    Ranks that share a GPU are connected by gloo, so they may lack what ranks on a CPU may lack.
    """
    if device == devices.CUDA_GLOO and requirement.cpu_only and requirement.ranks > 1:
        return replace(requirement, because=SHARING)
    lacking = requirement.cuda_only if device == devices.CPU else requirement.cpu_only
    missed = requirement.shared_only and device != devices.CUDA_GLOO
    return None if lacking or missed else requirement


def on_bitsandbytes(options: Options) -> bool:
    named = api.requirements(options.call)
    return options.quant != "none" or "8bit" in options.optim or any(name in BITSANDBYTES for name in named)


def adapts_by(method: str) -> Callable[[Options], bool]:
    return lambda options: options.method == method


SHARING = "this torch cannot do this with ranks that share a GPU"
BITSANDBYTES = (  # requirements of calls that use it
    *("4bit", "8bit", "4bit_loading", "8bit_loading", "bitsandbytes_4bit", "8bit_state", "adamw_8bit_step"),
)
REQUIREMENTS = (
    *CALL_REQUIREMENTS,
    Requirement(
        "bitsandbytes_binary",
        on_bitsandbytes,
        bitsandbytes.bitsandbytes_binary,
        "bitsandbytes has no binary for this CUDA",
        cuda_only=True,
    ),
    *(
        Requirement(
            f"model_{name}",
            lambda o, name=name: o.model == name,  # type: ignore[misc]  # the default captures the loop variable
            partial(libraries.known_model, model=name),
            "this transformers does not have the model",
        )
        for name in architectures.SPECS
        if name != "llama"
    ),
    *(
        Requirement(
            f"rope_scaling_{kind}",
            lambda o, kind=kind: o.rope_scaling == kind,  # type: ignore[misc]  # as above
            partial(libraries.rope_scaling, kind=kind),
            "this transformers does not know the scaling of rotary positions",
        )
        for kind in ("llama3", "yarn", "longrope")
    ),
    Requirement(
        "packed_mask",
        lambda o: o.data == "packed" and o.attn_implementation != "flash_attention_2",
        libraries.packed_mask,
        "this stack keeps packed documents apart with FlashAttention only",
    ),
    Requirement(
        "completion_mask",
        lambda o: o.data == "prompt_masked" and o.front_end == "sft",
        libraries.completion_mask,
        "this SFTTrainer accepts no mask of the tokens to learn",
    ),
    *(
        Requirement(
            f"sdpa_{name}",
            lambda o, name=name: o.model == name and implementation(o) == "sdpa",  # type: ignore[misc]  # as above
            partial(libraries.model_with_sdpa, model=name),
            "this transformers has no scaled-dot-product attention for the model",
        )
        for name in ("gemma", "mistral", "gpt2", "t5")  # not all versions support them
    ),
    *(
        Requirement(
            f"attention_{name}",
            lambda o, name=name: o.attn_implementation == name,  # type: ignore[misc]  # as above
            partial(arithmetic.forced_attention, attention=name),
            f"scaled-dot-product attention cannot be forced to {name} here",
        )
        for name in BACK_ENDS
    ),
    Requirement(
        "flash_attn",
        lambda o: o.attn_implementation == "flash_attention_2",
        arithmetic.flash_attention_package,
        "flash_attention_2 needs its package",
    ),
    *(
        Requirement(method, adapts_by(method), partial(libraries.method_options, method=method), because)
        for method, because in (
            ("rslora", "this peft has no rsLoRA"),
            ("dora", "this peft has no DoRA"),
            ("vera", "this peft has no VeRA"),
        )
    ),
    *(
        Requirement(
            f"{method}_start",
            adapts_by(method),
            partial(libraries.computed_start, method=method),
            because,
        )
        for method, because in (("pissa", "this peft has no PiSSA"), ("olora", "this peft has no OLoRA"))
    ),
    Requirement(
        "loftq_scipy",
        adapts_by("loftq"),
        libraries.scipy,
        "PEFT's LoftQ needs scipy, which it does not install",
    ),
    Requirement(
        "loftq_start",
        adapts_by("loftq"),
        partial(libraries.computed_start, method="loftq"),
        "LoftQ's start needs a GPU in this peft",
        cpu_only=True,
    ),
    Requirement(
        "adapter_dtype",
        lambda o: "autocast_adapter_dtype" in o.stated and not o.autocast_adapter_dtype,
        libraries.adapter_dtype_option,
        "this peft has no autocast_adapter_dtype",
    ),
    Requirement(
        "storage",
        lambda o: o.bnb_4bit_quant_storage != "uint8",
        libraries.storage_option,
        "this transformers has no bnb_4bit_quant_storage",
    ),
    Requirement(
        "peft_policy", lambda o: o.auto_wrap_policy == "peft", libraries.peft_policy, "this peft has no wrap policy"
    ),
    Requirement(
        "accelerate_has_fsdp2",
        lambda o: o.front_end != "loop" and o.strategy == "fsdp2",
        sharding.accelerate_fsdp2_option,
        "this accelerate has no FSDP2",
    ),
    Requirement("fsdp2_exists", lambda o: o.strategy == "fsdp2", sharding.fsdp2_exists, "this torch has no FSDP2"),
    Requirement(
        "4bit",
        lambda o: o.quant in FOUR_BIT,
        bitsandbytes.four_bit,
        "4-bit layers need a GPU in this bitsandbytes",
        cpu_only=True,
    ),
    Requirement(
        "8bit",
        lambda o: o.quant == "int8",
        bitsandbytes.eight_bit,
        "8-bit layers need a GPU in this bitsandbytes",
        cpu_only=True,
    ),
    Requirement(
        "4bit_loading",
        lambda o: o.quant in FOUR_BIT,
        lambda place, cache: bitsandbytes.quantised_loading(place, cache, "nf4"),
        "4-bit loading needs a GPU in this transformers",
        cpu_only=True,
    ),
    Requirement(
        "8bit_loading",
        lambda o: o.quant == "int8",
        lambda place, cache: bitsandbytes.quantised_loading(place, cache, "int8"),
        "8-bit loading needs a GPU in this transformers",
        cpu_only=True,
    ),
    Requirement(
        "half_arithmetic",
        lambda o: o.torch_dtype == "fp16",
        arithmetic.half_arithmetic,
        "this torch has no float16 arithmetic on the CPU",
        cpu_only=True,
    ),
    Requirement(
        "half_autocast",
        lambda o: o.autocast == "fp16",
        arithmetic.half_autocast,
        "this torch has no float16 autocast on the CPU",
        cpu_only=True,
    ),
    Requirement(
        "gradient_scaler",
        lambda o: o.autocast == "fp16",
        arithmetic.gradient_scaler,
        "this torch has no gradient scaler for the device",
    ),
    Requirement(
        "8bit_state",
        lambda o: o.optim == "adamw_8bit",
        bitsandbytes.eight_bit_state,
        "8-bit optimisers need a GPU in this bitsandbytes",
        cpu_only=True,
    ),
    Requirement(
        "paged_state", lambda o: o.optim == "paged_adamw_8bit", bitsandbytes.paged_state, "paged optimisers need a GPU"
    ),
    Requirement(
        "fused_sgd",
        lambda o: o.optim_implementation == "fused" and o.optim == "sgd",
        lambda place, cache: arithmetic.fused_step(place, cache, "SGD"),
        "this torch has no fused SGD for the device",
    ),
    Requirement(
        "fused_adamw",
        lambda o: o.optim_implementation == "fused" and o.optim == "adamw",
        lambda place, cache: arithmetic.fused_step(place, cache, "AdamW"),
        "this torch has no fused AdamW for the device",
    ),
    Requirement(
        "compile",
        lambda o: o.torch_compile,
        arithmetic.compiling,
        "torch.compile does not work with this torch, machine and Python",
    ),
    Requirement(
        "fsdp1",
        lambda o: o.strategy == "fsdp1",
        sharding.bare_fsdp1,
        "FSDP1 needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Requirement(
        "fsdp1_sync",
        lambda o: o.strategy == "fsdp1" and o.sync_module_states,
        sharding.synced_fsdp1,
        "sync_module_states needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Requirement(
        "fsdp2",
        lambda o: o.strategy == "fsdp2",
        sharding.bare_fsdp2,
        "FSDP2 needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Requirement(
        "fsdp1_mixed",
        lambda o: o.strategy == "fsdp1" and o.mixed_precision == "bf16",
        sharding.mixed_fsdp1,
        "FSDP1's reduction in bfloat16 needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Requirement(
        "accelerate_half",
        lambda o: o.front_end != "loop" and o.autocast == "fp16",
        sharding.accelerate_half,
        "accelerate scales float16 losses on GPUs only",
        cpu_only=True,
    ),
    Requirement(
        "trainer_half",
        lambda o: o.front_end in ("trainer", "sft") and o.autocast == "fp16",
        libraries.trainer_half,
        "the Trainer trains in float16 on GPUs only",
        cpu_only=True,
    ),
    Requirement(
        "accelerate_fsdp1",
        lambda o: o.front_end != "loop" and o.strategy == "fsdp1",
        lambda place, _: sharding.accelerate_sharded(place, 1),
        "accelerate shards on GPUs only",
        2,
        cpu_only=True,
    ),
    Requirement(
        "fsdp2_mixed",
        lambda o: o.strategy == "fsdp2" and o.mixed_precision == "bf16",
        sharding.mixed_fsdp2,
        "FSDP2's reduction in bfloat16 needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Requirement(
        "fsdp1_hybrid",
        lambda o: o.strategy == "fsdp1" and o.device_mesh == "hsdp",
        sharding.hybrid_fsdp1,
        "FSDP1's hybrid sharding needs GPUs in this torch",
        4,
        cpu_only=True,
    ),
    Requirement(
        "fsdp2_hybrid",
        lambda o: o.strategy == "fsdp2" and o.device_mesh == "hsdp",
        sharding.hybrid_fsdp2,
        "FSDP2's hybrid sharding needs GPUs in this torch",
        4,
        cpu_only=True,
    ),
    Requirement(
        "fsdp1_whole",
        lambda o: o.strategy == "fsdp1" and o.stated.get("state_dict_type") in ("full", "full_dcp"),
        sharding.whole_fsdp1,
        "FSDP1's full state dict in CPU memory needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Requirement("offload", lambda o: o.cpu_offload, arithmetic.offload, "offloading needs a GPU", cpu_only=True),
    Requirement(
        "broadcast",
        lambda o: o.strategy == "fsdp2" and o.cpu_ram_efficient_loading,
        sharding.broadcast_option,
        "this torch cannot broadcast rank 0's state dict to FSDP2's shards",
    ),
    Requirement(
        "unshard",
        lambda o: o.strategy == "fsdp2" and o.summon_full_params,
        sharding.unsharding_method,
        "this torch cannot unshard FSDP2's root",
    ),
    Requirement(
        "accelerate_fsdp2",
        lambda o: o.front_end != "loop" and o.strategy == "fsdp2",
        lambda place, _: sharding.accelerate_sharded(place, 2),
        "accelerate shards on GPUs only",
        2,
        cpu_only=True,
    ),
)
PROBES: dict[str, Probe] = {requirement.name: requirement.probe for requirement in REQUIREMENTS}
