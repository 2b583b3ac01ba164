"""The units that accelerate's plugin makes of a model under FSDP2, by each policy, and what is checkpointed.

accelerate has no FSDP on a CPU, so the cells change the type and the plugin in accelerate's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients, jobs, sharded_saving
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "FSDP2 in a user's script"
NEEDS = (*jobs.FSDP2, "accelerate_has_fsdp2")
LAYER = "LlamaDecoderLayer"
ENDS = ("model.embed_tokens", "model.norm", "lm_head")
FEW, MANY = 3000, 10**9  # parameters: fewer than a projection has, and more than the model


def units(model: Any) -> list[str]:
    """The names of the modules that FSDP2 made a unit, but for the ends of a model, which some versions shard."""
    found = [name for name, module in model.named_modules() if type(module).__name__.startswith("FSDP")]
    return [name for name in found if name not in ENDS]


def sharded(ctx: Context, **chosen: Any) -> Any:
    import torch

    model = ingredients.base(ctx)
    plugin = sharded_saving.plugin(model, 2)
    for name, value in chosen.items():
        setattr(plugin, name, value)
    made = jobs.accelerator(ctx, plugin)
    return made.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))[0]


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=NEEDS)
def fsdp2_units_by_policy(ctx: Context) -> Iterator[Check]:
    """Each policy of accelerate's plugin makes units of FSDP2: classes by name or by the model, sizes, or the root.

    https://huggingface.co/docs/accelerate/package_reference/fsdp
    """
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy

    layers = [f"model.layers.{number}" for number in range(2)]
    named = {"auto_wrap_policy": transformer_auto_wrap_policy, "transformer_cls_names_to_wrap": [LAYER]}
    yield equal("units, by name", str(sorted(units(sharded(ctx, **named)))), str(sorted(["", *layers])))
    several = {**named, "transformer_cls_names_to_wrap": [LAYER, "LlamaMLP"]}
    wanted = ["", *layers, *(f"{layer}.mlp" for layer in layers)]
    yield equal("units, by two names", str(sorted(units(sharded(ctx, **several)))), str(sorted(wanted)))
    own = {**named, "transformer_cls_names_to_wrap": None}
    yield equal("units, by the model", str(sorted(units(sharded(ctx, **own)))), str(sorted(["", *layers])))
    size = {"auto_wrap_policy": size_based_auto_wrap_policy}
    yield equal("units, larger than the model", str(units(sharded(ctx, **size, min_num_params=MANY))), "['']")
    yield equal("units, no policy", str(units(sharded(ctx, auto_wrap_policy=None))), "['']")


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=NEEDS)
def fsdp2_units_by_size(ctx: Context) -> Iterator[Check]:
    """min_num_params of accelerate's plugin makes a unit of FSDP2 of every larger module that can be one.

    A list of layers, which has no forward, is none: "min_num_params (int): The number of parameters a module must have
    to be wrapped".
    """
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    model = ingredients.base(ctx)
    large = {name for name, each in model.named_modules() if sum(p.numel() for p in each.parameters()) > FEW}
    containers = {name for name, each in model.named_modules() if type(each).__name__ == "ModuleList"}
    size = {"auto_wrap_policy": size_based_auto_wrap_policy, "min_num_params": FEW}
    found = set(units(sharded(ctx, **size)))
    wanted = (large | {""}) - containers - {*ENDS}
    yield equal("units, by size", str(sorted(found - containers)), str(sorted(wanted)))
