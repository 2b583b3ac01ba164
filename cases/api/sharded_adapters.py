"""Combinations of adapters, gradient checkpointing, optimisers and FSDP."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.api.jobs import FSDP1, FSDP2, PACKED
from cases.api.sharded_saving import plugin
from cases.api.sharding import decoder_policy, fsdp1, wait
from cases.apply import build, compat
from cases.checks import observers
from cases.model import adapter_start, architectures, tiny
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

TOGETHER = "Combinations of adapters, checkpointing and optimisers"


@call(TOGETHER, phase=Phase.BACKWARD, requires=("activated_lora",))
def activated_lora_checkpointed(ctx: Context) -> Iterator[Check]:
    """Activated LoRA gets the same gradients with non-reentrant checkpointing as without."""
    yield from activated(ctx, use_reentrant=False)


@call(TOGETHER, phase=Phase.BACKWARD, requires=("activated_lora",))
def activated_lora_checkpointed_reentrant(ctx: Context) -> Iterator[Check]:
    """Activated LoRA gets the same gradients with reentrant checkpointing as without."""
    yield from activated(ctx, use_reentrant=True)


def activated(ctx: Context, **kind: bool) -> Iterator[Check]:
    expected = activated_gradients(ctx)
    found = activated_gradients(ctx, gradient_checkpointing_kwargs=kind)
    yield at_least("largest gradient", max(float(each.abs().max()) for each in expected.values()), 1e-3)
    yield at_most("gradient off", tolerance.worst_tensor(found, expected), jobs.SAME)


def activated_gradients(ctx: Context, **checkpointing: Any) -> dict[str, Any]:
    import torch
    from peft import get_peft_model

    invocation = [5, 6]
    base = jobs.base(ctx)
    if checkpointing:
        base.gradient_checkpointing_enable(**checkpointing)
        base.enable_input_require_grads()
    model = get_peft_model(base, jobs.lora_config(alora_invocation_tokens=invocation)).train()
    adapter_start.start(model, Options())
    ids = tiny.batch(0).to(ctx.place.device)
    ids[:, 4:6] = torch.tensor(invocation)
    model(input_ids=ids, labels=ids).loss.backward()
    return jobs.gradients(model)


@call(TOGETHER, phase=Phase.BACKWARD)
def reentrant_checkpointing_after_adapter(ctx: Context) -> Iterator[Check]:
    """Reentrant checkpointing enabled after the adapter, as Trainer does, gives the right gradients."""
    yield from checkpointed_after(ctx, use_reentrant=True)


@call(TOGETHER, phase=Phase.BACKWARD)
def non_reentrant_checkpointing_after_adapter(ctx: Context) -> Iterator[Check]:
    """Non-reentrant checkpointing enabled after the adapter gives the right gradients."""
    yield from checkpointed_after(ctx, use_reentrant=False)


@call(TOGETHER, phase=Phase.BACKWARD)
def reentrant_checkpointing_with_trained_head(ctx: Context) -> Iterator[Check]:
    """Reentrant checkpointing after an adapter whose trained head gets gradients anyway trains the adapter."""
    yield from checkpointed_after(ctx, config={"modules_to_save": ["lm_head"]}, use_reentrant=True)


def checkpointed_after(ctx: Context, config: dict[str, Any] | None = None, **kind: bool) -> Iterator[Check]:
    from peft import get_peft_model

    model = get_peft_model(jobs.base(ctx), jobs.lora_config(lora_alpha=16, **(config or {}))).train()
    adapter_start.start(model, Options())
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kind)
    jobs.whole_loss(model, ctx).backward()
    found = {name: each for name, each in jobs.gradients(model).items() if tiny.is_adapter(name)}
    yield jobs.as_in_one_process(found, ctx)


@call(TOGETHER, phase=Phase.FORWARD, ranks=2, requires=("target_parameters", *FSDP1))
def fsdp1_lora_on_fused_experts(ctx: Context) -> Iterator[Check]:
    """LoRA on the fused weights of experts (target_parameters) trains under FSDP1."""
    model = experts()
    sharded = fsdp1(model, ctx, auto_wrap_policy=decoder_policy(model), use_orig_params=True)
    yield from experts_trained(ctx, sharded, "fsdp1")


@call(TOGETHER, phase=Phase.FORWARD, ranks=2, requires=("target_parameters", *FSDP2))
def fsdp2_lora_on_fused_experts(ctx: Context) -> Iterator[Check]:
    """LoRA on the fused weights of experts (target_parameters) trains under FSDP2."""
    yield from experts_trained(ctx, jobs.wrapped(ctx, experts(), strategy="fsdp2"), "fsdp2")


@call(TOGETHER, phase=Phase.FORWARD, ranks=2, requires=("target_parameters", *FSDP1))
def fsdp1_lora_on_fused_experts_peft_policy(ctx: Context) -> Iterator[Check]:
    """LoRA on the fused weights of experts trains under PEFT's wrap policy, which wraps each adapter weight."""
    sharded = jobs.wrapped(ctx, experts(), strategy="fsdp1", use_orig_params=False, auto_wrap_policy="peft")
    yield from experts_trained(ctx, sharded, "fsdp1")


def experts() -> Any:
    """A tiny mixture of experts with LoRA on their weights, the same on every rank."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import GptOssConfig, GptOssForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": tiny.VOCABULARY}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4}
    config = GptOssConfig(**sizes, **heads, num_experts_per_tok=2, pad_token_id=0, attn_implementation="eager")
    adapter = LoraConfig(target_modules=[], target_parameters=["experts.gate_up_proj", "experts.down_proj"], r=4)
    model = get_peft_model(GptOssForCausalLM(config), adapter)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def experts_trained(ctx: Context, sharded: Any, strategy: str) -> Iterator[Check]:
    expected = experts()
    jobs.whole_loss(expected, ctx).backward()
    jobs.loss(sharded, ctx).backward()
    found = jobs.gradients(sharded, strategy=strategy)
    yield at_most("gradient off", tolerance.worst_tensor(found, jobs.gradients(expected)), 1e-4)


@call(TOGETHER, phase=Phase.SAVE, ranks=2, requires=("adamw_8bit_step", *FSDP1))
def fsdp1_state_dict_of_adamw_8bit(ctx: Context) -> Iterator[Check]:
    """FSDP1 creates the optimizer state dict of bitsandbytes' 8-bit AdamW."""
    from bitsandbytes.optim import AdamW8bit
    from torch.distributed.fsdp import FullyShardedDataParallel

    sharded = jobs.wrapped(ctx, jobs.base(ctx), strategy="fsdp1", method="full")
    optimiser = AdamW8bit(sharded.parameters(), lr=1e-3, min_8bit_size=16)
    jobs.step(sharded, ctx, optimiser)
    held = FullyShardedDataParallel.optim_state_dict(sharded, optimiser)
    if ctx.place.rank == 0:
        yield equal("parameters with a state", len(held["state"]), sum(1 for _ in jobs.base(ctx).parameters()))


@call(TOGETHER, phase=Phase.OPTIMIZER, ranks=2, requires=FSDP1)
def fsdp1_accelerate_keeps_adamw_8bit(ctx: Context) -> Iterator[Check]:
    """accelerator.prepare keeps an 8-bit optimiser 8-bit under FSDP1."""
    from bitsandbytes.optim import AdamW8bit

    model = jobs.base(ctx)
    given = jobs.accelerator(ctx, plugin(model, 1))
    _, optimiser = given.prepare(model, AdamW8bit(model.parameters(), lr=1e-3))
    inner = optimiser.optimizer
    yield equal("optimiser", type(inner).__name__, "AdamW8bit")
    yield equal("bits", inner.args.optim_bits, 8)
    yield equal("decay", inner.defaults["weight_decay"], AdamW8bit(model.parameters()).defaults["weight_decay"])


@call(TOGETHER, phase=Phase.LOAD)
def resize_embeddings_on_meta(ctx: Context) -> Iterator[Check]:
    """resize_token_embeddings works on the meta device, where all ranks except the first load a model."""
    yield from resized(ctx)


@call(TOGETHER, phase=Phase.LOAD)
def resize_embeddings_on_meta_plainly(ctx: Context) -> Iterator[Check]:
    """resize_token_embeddings works on the meta device with mean_resizing=False, if the version has this argument."""
    yield from resized(ctx, mean_resizing=False)


def resized(_here: Context, **chosen: bool) -> Iterator[Check]:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(architectures.plain_config())
    known = inspect.signature(model.resize_token_embeddings).parameters
    wanted = tiny.VOCABULARY + 8
    model.resize_token_embeddings(wanted, **{name: value for name, value in chosen.items() if name in known})
    yield equal("rows", model.get_input_embeddings().weight.shape[0], wanted)


@call(TOGETHER, phase=Phase.WRAP, ranks=2, requires=FSDP2)
def fsdp2_trl_reference_model(ctx: Context) -> Iterator[Check]:
    """TRL's prepare_fsdp shards a reference model by the FSDP2 plugin that shards the trained one."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from trl.models.utils import prepare_fsdp

    model = jobs.base(ctx)
    wanted = plugin(model, 2)
    wanted.mixed_precision_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    reference = prepare_fsdp(model, jobs.accelerator(ctx, wanted))
    yield equal("parameters left whole", sum(not hasattr(p, "full_tensor") for p in reference.parameters()), 0)
    jobs.loss(reference, ctx)


@call(TOGETHER, phase=Phase.RELOAD, ranks=2, requires=FSDP1)
def fsdp1_prompt_tuning_pretrained_weights(ctx: Context) -> Iterator[Check]:
    """load_state_dict(strict=False) of pretrained weights into prompt tuning under FSDP1 reports the missing keys."""
    from peft import PromptTuningConfig, get_peft_model

    model = get_peft_model(jobs.base(ctx), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    pretrained = {n: t.clone() for n, t in model.state_dict().items() if "prompt" not in n and "word_emb" not in n}
    sharded = jobs.wrapped(ctx, model, strategy="fsdp1", auto_wrap_policy="peft")
    missing = sharded.load_state_dict(pretrained, strict=False).missing_keys
    yield equal("missing that are no prompts", sum("prompt" not in n and "word_emb" not in n for n in missing), 0)
    yield equal("prompts missing", sum("prompt_encoder" in name for name in missing), 1)


@call(TOGETHER, phase=Phase.RELOAD, requires=PACKED)
def prequantised_checkpoint(ctx: Context) -> Iterator[Check]:
    """A reloaded 4-bit checkpoint with bfloat16 storage gives the logits of the saved model."""
    jobs.base(ctx, **STORED).save_pretrained(ctx.kept)
    yield from as_saved(ctx, reloaded(ctx))


@call(TOGETHER, phase=Phase.RELOAD, requires=PACKED)
def prequantised_checkpoint_with_dtype(ctx: Context) -> Iterator[Check]:
    """A 4-bit checkpoint with bfloat16 storage, reloaded with that dtype, gives the logits of the saved model."""
    jobs.base(ctx, **STORED).save_pretrained(ctx.kept)
    yield from as_saved(ctx, reloaded(ctx, **compat.load_arguments(jobs.options(torch_dtype="bf16"), None)))


@call(TOGETHER, phase=Phase.WRAP, ranks=2, requires=(*PACKED, *FSDP1))
def fsdp1_prequantised_checkpoint(ctx: Context) -> Iterator[Check]:
    """A reloaded 4-bit checkpoint with bfloat16 storage gives the logits of the saved model under FSDP1."""
    if ctx.place.rank == 0:
        jobs.base(ctx, **STORED).save_pretrained(ctx.kept)
    wait()
    model = build.adapt(reloaded(ctx), jobs.options(**STORED))
    sharded = jobs.wrapped(ctx, model, strategy="fsdp1", use_orig_params=False, auto_wrap_policy="peft")
    yield from as_saved(ctx, sharded, adapted=True)


STORED: dict[str, Any] = {"quant": "nf4", "torch_dtype": "bf16", "bnb_4bit_quant_storage": "bf16"}


def reloaded(ctx: Context, **arguments: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(ctx.kept, device_map={"": ctx.place.device}, **arguments)


def as_saved(ctx: Context, model: Any, *, adapted: bool = False) -> Iterator[Check]:
    ids = tiny.batch(0).to(ctx.place.device)
    original = jobs.adapted(ctx, **STORED) if adapted else jobs.base(ctx, **STORED)
    expected, found = (observers.whole(each.train()(input_ids=ids).logits) for each in (original, model))
    yield at_most("logits off", tolerance.relative(found, expected), jobs.HALF)
