"""The table of evidence: for each option, the checks that prove that the stack did not ignore it.

Every option has a row in ``EVIDENCE``; a test insists on it. A row yields checks, measured on this rank.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cases.checks import resources
from cases.checks.engagement import adapter, base_model, ddp, fsdp, training_loop, wrapper
from cases.space.options import applies, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.checks.engagement.recorder import EngagementRecorder
    from cases.space.options import Options
    from cases.space.verdict import Check

EVIDENCE: Mapping[str, Callable[[EngagementRecorder], Iterator[Check]]] = {
    "flow": training_loop.flow,
    "method": adapter.method,
    "modules_to_save": adapter.modules_to_save,
    "target_embeddings": adapter.target_embeddings,
    "model": base_model.model,
    "rope_scaling": base_model.rope_scaling,
    "embeddings": base_model.embeddings,
    "quant": base_model.quant,
    "bnb_4bit_quant_storage": base_model.bnb_4bit_quant_storage,
    "bnb_4bit_use_double_quant": base_model.bnb_4bit_use_double_quant,
    "llm_int8_skip_modules": base_model.llm_int8_skip_modules,
    "prequantised": base_model.prequantised_checkpoint,
    "torch_dtype": base_model.torch_dtype,
    "bnb_4bit_compute_dtype": base_model.bnb_4bit_compute_dtype,
    "autocast": training_loop.autocast,
    "autocast_adapter_dtype": adapter.autocast_adapter_dtype,
    "strategy": wrapper.strategy,
    "world_size": wrapper.world_size,
    "use_orig_params": fsdp.use_orig_params,
    "auto_wrap_policy": fsdp.auto_wrap_policy,
    "sharding_strategy": fsdp.sharding_strategy,
    "sync_module_states": wrapper.sync_module_states,
    "reshard_after_forward": fsdp.reshard_after_forward,
    "device_mesh": fsdp.device_mesh,
    "mixed_precision": fsdp.mixed_precision,
    "cpu_offload": fsdp.cpu_offload,
    "cpu_ram_efficient_loading": fsdp.cpu_ram_efficient_loading,
    "state_dict_type": fsdp.state_dict_type,
    "summon_full_params": fsdp.summon_full_params,
    "find_unused_parameters": ddp.find_unused_parameters,
    "static_graph": ddp.static_graph,
    "gradient_as_bucket_view": ddp.gradient_as_bucket_view,
    "gradient_checkpointing": training_loop.gradient_checkpointing,
    "gradient_accumulation_steps": training_loop.gradient_accumulation_steps,
    "clip_grad_norm": training_loop.clip_grad_norm,
    "attn_implementation": training_loop.attn_implementation,
    "optim": training_loop.optim,
    "optim_implementation": training_loop.optim_implementation,
    "front_end": training_loop.front_end,
    "loop": training_loop.loop,
    "data": training_loop.data,
    "torch_compile": training_loop.torch_compile,
}


def checks(recorder: EngagementRecorder) -> list[Check]:
    """The checks of every option of a case; if wrapping failed, that and the checks that need no wrapper."""
    options = recorder.options
    reported = names() if recorder.is_wrapped() else [name for name in names() if applies(name, without_ranks(options))]
    evidence = [check for name in reported if applies(name, options) for check in EVIDENCE[name](recorder)]
    return [*evidence, *resources_held(recorder)]


def without_ranks(options: Options) -> Options:
    """The same options in one process: those that apply to it need no wrapper, except ``strategy`` itself."""
    return replace(options, strategy="single")


def resources_held(recorder: EngagementRecorder) -> Iterator[Check]:
    """Gradients and optimiser state: sharded or whole, as the strategy promises."""
    options, place = recorder.options, recorder.place
    if recorder.trace.gradient_bytes is None or options.front_end != "loop":
        return
    yield from resources.promised("gradient", *recorder.trace.gradient_bytes, options, place)
    whole = resources.whole_state_bytes(recorder.numbers, recorder.itemsizes, options)
    yield from resources.promised("optimiser state", resources.state_bytes(recorder.optimiser), whole, options, place)
