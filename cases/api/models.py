"""Builders for calls: the tiny model, quantised or not, adapters on it, and its logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.apply import build, compat
from cases.model import adapter_start, architectures, tiny
from cases.space.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from cases.apply.context import Context


def chosen(quant: str = "none", dtype: str = "bf16", storage: str = "uint8") -> Options:
    return Options().but(flow="load", method="full", quant=quant, torch_dtype=dtype, bnb_4bit_quant_storage=storage)


def loaded(ctx: Context, quant: str = "none", dtype: str = "bf16", *, folder: Path | None = None) -> Any:
    """Load a checkpoint, by default the tiny one, through ``from_pretrained``."""
    return build.load_from(folder or architectures.plain_checkpoint(ctx.cache), chosen(quant, dtype), ctx.place)


def config(**other: Any) -> Any:
    """A LoRA configuration with the suite's defaults."""
    from peft import LoraConfig

    usual = {
        "task_type": "CAUSAL_LM",
        "r": tiny.RANK,
        "lora_alpha": int(tiny.SCALING * tiny.RANK),
        "lora_dropout": 0.0,
        "target_modules": list(tiny.TARGETS),
    }
    return LoraConfig(**{**usual, **other})


def adapted(model: Any, **other: Any) -> Any:
    """Add an adapter with non-zero weights, as if it had been trained."""
    from peft import get_peft_model

    model = get_peft_model(model, config(**other))
    adapter_start.start(model, Options())
    return model


def with_second(model: Any, **other: Any) -> Any:
    """Add a second adapter to the one called default."""
    model.add_adapter("second", config(**other))
    adapter_start.start(model, Options())
    return model


def ids(model: Any) -> Any:
    """One batch, on the device of a model's first weights."""
    return tiny.batch(0).to(next(model.parameters()).device)


def logits(model: Any, *, training: bool = False) -> Any:
    """The logits of one batch. In evaluation mode, bitsandbytes may repack 4-bit weights on a CPU."""
    import torch

    with torch.no_grad():
        return model.train(training)(ids(model)).logits.float().cpu()


def published(ctx: Context, config: Any, dtype: str = "bf16") -> Path:
    """A checkpoint of another model, in the dtype in which it was published."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config)
    tiny.fill(model)
    folder = ctx.kept / "published"
    model.to(compat.dtype(dtype)).save_pretrained(folder)  # type: ignore[arg-type]
    return folder


def pickled(ctx: Context) -> Path:
    """The tiny model in one pickle file, as most models were published until 2023."""
    import torch

    folder, model = ctx.kept / "pickled", loaded(ctx, dtype="fp32")
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def variant(**other: Any) -> Any:
    """The tiny model's configuration with some fields changed."""
    changed = architectures.plain_config()
    for name, value in other.items():
        setattr(changed, name, value)
    return changed


def saved_adapter(ctx: Context, **other: Any) -> Path:
    """A folder with an adapter for the tiny model in float32."""
    folder = ctx.kept / "adapter"
    adapted(loaded(ctx, dtype="fp32"), **other).save_pretrained(folder)
    return folder


def projection(model: Any) -> Any:
    """An adapted layer: the first query projection."""
    return next(module for name, module in model.named_modules() if name.endswith("layers.0.self_attn.q_proj"))
