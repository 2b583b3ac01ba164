"""FSDP2 in user scripts, through accelerate and directly."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.api.loading import SAME, launched
from cases.apply import build
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "FSDP2 in a user's script"


def accelerator(ctx: Context, **chosen: Any) -> Any:
    """Create an Accelerator that uses an FSDP plugin on the CPU too, where it would ignore the plugin."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    known = inspect.signature(FullyShardedDataParallelPlugin).parameters
    quiet = {"sync_module_states": False, "cpu_ram_efficient_loading": False}
    plugin = FullyShardedDataParallelPlugin(**{name: no for name, no in quiet.items() if name in known}, **chosen)
    launched(ctx)
    made = Accelerator(cpu=ctx.place.kind == "cpu")
    made.state.distributed_type = DistributedType.FSDP
    made.state.fsdp_plugin = plugin
    return made


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=("fsdp2_exists", "accelerate_has_fsdp2"))
def accelerate_fsdp2(ctx: Context) -> Iterator[Check]:
    """accelerator.prepare with fsdp_version=2 shards every weight."""
    import torch

    model = ingredients.base(ctx)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    made = accelerator(ctx, fsdp_version=2)
    model, optimiser = made.prepare(model, optimiser)
    whole = [name for name, weight in model.named_parameters() if not hasattr(weight, "full_tensor")]
    yield equal("weights left whole", len(whole), 0)
    ids = tiny.shard(0, ctx.place.rank, ctx.place.world_size).to(ctx.place.device)
    made.backward(model(input_ids=ids, labels=ids).loss)
    optimiser.step()


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("fsdp2_exists", "fsdp2"))
def fsdp2_inner_module(ctx: Context) -> Iterator[Check]:
    """The head of a model under FSDP2 can be called alone on hidden states, as trl's GRPO does."""
    import torch
    from peft import get_peft_model

    model = ingredients.fill_adapter(get_peft_model(ingredients.base(ctx), ingredients.lora()))
    ids = tiny.batch(0).to(ctx.place.device)
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states[-1]
        expected = model.get_output_embeddings()(states)
        sharded = build.wrap(model, Options().but(strategy="fsdp2"), ctx.place)
        found = sharded.get_output_embeddings()(states)
    yield at_most("logits off", ingredients.largest_difference(found, expected), SAME)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("fsdp2_exists", "fsdp2"))
def fsdp2_whole_model(ctx: Context) -> Iterator[Check]:
    """A model under FSDP2 gives the same logits when the whole model is called."""
    from peft import get_peft_model

    model = ingredients.fill_adapter(get_peft_model(ingredients.base(ctx), ingredients.lora()))
    expected = ingredients.logits(model, ctx)
    sharded = build.wrap(model, Options().but(strategy="fsdp2"), ctx.place)
    yield at_most("logits off", ingredients.largest_difference(ingredients.logits(sharded, ctx), expected), SAME)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("fsdp2_exists", "fsdp2", "4bit"))
def fsdp2_four_bit_layer(ctx: Context) -> Iterator[Check]:
    """A 4-bit layer with bfloat16 storage gives the same output after fully_shard, for all packed bytes."""
    import torch
    from bitsandbytes.nn import Linear4bit

    kind = {"quant_type": "nf4", "compute_dtype": torch.bfloat16, "quant_storage": torch.bfloat16}
    layer = Linear4bit(tiny.HIDDEN, 2 * tiny.HIDDEN, bias=False, **kind)
    layer.load_state_dict({"weight": tiny.values("layer.weight", (2 * tiny.HIDDEN, tiny.HIDDEN))})
    layer = layer.to(ctx.place.device)
    inputs = tiny.values("inputs", (tiny.LENGTH, tiny.HIDDEN)).to(ctx.place.device, torch.bfloat16)
    with torch.no_grad():
        expected = layer(inputs).float()
        sharded = build.wrap(layer, Options().but(strategy="fsdp2", auto_wrap_policy="none"), ctx.place)
        found = sharded(inputs).float()
    yield at_least("outputs", float(expected.abs().max()), SAME)
    yield at_most("outputs off", ingredients.largest_difference(found, expected), 0.0)
