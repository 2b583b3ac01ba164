"""A small Llama whose layers have several blocks of 128 x 128 numbers, as a plain and as an FP8 checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cases.api import models
from cases.apply import compat
from cases.model import tiny
from cases.reference import float8

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cases.apply.context import Context

SIZES = {
    "vocab_size": tiny.VOCABULARY,
    "hidden_size": 2 * float8.BLOCK,
    "intermediate_size": 3 * float8.BLOCK,
    "num_hidden_layers": tiny.LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
LAYERS = tiny.LAYERS * len(tiny.LINEARS)
TARGETS = ("q_proj", "v_proj", "down_proj")
SINGLE = 1e-5  # float32 in sums of up to 384 products
CHANGED = "model.layers.0.self_attn.q_proj"  # a layer with 2 x 2 blocks


def configuration(**other: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**{**SIZES, **other})


def filled(**other: Any) -> Any:
    """A float32 model on the CPU; the largest numbers of its blocks differ, so that exchanged scales show."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(configuration(**other)).float().eval()
    tiny.fill(model)
    with torch.no_grad():
        for layer in linears(model).values():
            rows, columns = (size // float8.BLOCK for size in layer.weight.shape)
            factors = 0.25 + 0.125 * torch.arange(rows * columns).reshape(rows, columns)
            layer.weight.mul_(float8.spread(factors))
    return model


def linears(model: Any) -> dict[str, Any]:
    """The layers of the blocks by name, without the output layer; below adapters, the base layers."""
    found = {}
    for name, layer in model.named_modules():
        bare = tiny.canonical(name)
        if bare.rpartition(".")[2] in tiny.LINEARS and ".layers." in bare:
            found[bare] = layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer
    return found


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def loaded(ctx: Context, folder: Path, **other: Any) -> Any:
    """A float32 model on the device of the rank."""
    from transformers import AutoModelForCausalLM

    arguments = compat.load_arguments(models.chosen(dtype="fp32"), ctx.place.device)
    arguments["device_map"] = {"": ctx.place.device}
    return AutoModelForCausalLM.from_pretrained(folder, **{**arguments, **other}).eval()


def fp8_checkpoint(model: Any, folder: Path) -> Path:
    """An FP8 checkpoint as released models have it, with values and scales of the reference."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for name, layer in linears(model).items():
        values, scales = float8.blocks(layer.weight.detach())
        state[f"{name}.weight"] = values.to(torch.float8_e4m3fn)
        state[f"{name}.weight_scale_inv"] = scales
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    stated = {
        **model.config.to_dict(),
        "architectures": ["LlamaForCausalLM"],
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "weight_block_size": [float8.BLOCK, float8.BLOCK],
            "modules_to_not_convert": ["lm_head"],
        },
    }
    (folder / "config.json").write_text(json.dumps(stated, default=str), encoding="utf-8")
    return folder


def held(model: Any) -> dict[str, tuple[Any, Any]]:
    """The 8-bit values, as float64, and the scales of each layer, on the CPU."""
    return {
        name: (layer.weight.detach().cpu().double(), layer.weight_scale_inv.detach().cpu())
        for name, layer in linears(model).items()
    }


def stand_in(weights: Mapping[str, Any], *, rounds: bool, **other: Any) -> Any:
    """A plain float64 model with these weights in its layers, which round their inputs as FP8 layers do.

    The rounding passes gradients on as they are.
    """
    import torch

    model = filled(**other).double()
    with torch.no_grad():
        for name, layer in linears(model).items():
            layer.weight.copy_(weights[name])
            if rounds:
                layer.register_forward_pre_hook(
                    lambda _, given: (given[0] + (float8.groups(given[0]) - given[0]).detach(),)
                )
    return model


def logits(model: Any) -> Any:
    """The logits of one batch, float64, on the CPU."""
    import torch

    with torch.no_grad():
        return model(input_ids=models.ids(model)).logits.double().cpu()


def different(found: Any, wanted: Any) -> int:
    """The number of entries that differ; all of them if the shapes do."""
    return int((found != wanted).sum()) if found.shape == wanted.shape else wanted.numel()
