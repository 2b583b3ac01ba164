"""Evidence that each option really ran: an option that is silently ignored is the worst kind of incompatibility.

Every option has a row in ``EVIDENCE``; a test insists on it. A row yields checks, measured on this rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from cases import observe, stack, tiny
from cases.options import applies, names
from cases.verdict import Check, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.build import Place
    from cases.options import Options

SHARD_SLACK = 1.1  # flat parameters are padded; a tenth more than 1/N is padding, not replication


@dataclass
class Witness:
    """Sees a case from the moment it is adapted; what wrapping would hide is noted before it."""

    options: Options
    place: Place
    dtypes: dict[str, str] = field(default_factory=dict)
    dtypes_after: dict[str, str] = field(default_factory=dict)
    trainable: set[str] = field(default_factory=set)
    quantised: int = 0
    kinds: set[str] = field(default_factory=set)  # of 4-bit layers
    total_bytes: int = 0
    passes: dict[str, list[tuple[bool, bool]]] = field(default_factory=dict)  # by layer: (training, gradients on)
    computed_in: set[str] = field(default_factory=set)  # output dtypes of plain linear layers
    losses: list[float] = field(default_factory=list)  # of this rank's shard
    sharded_after_forward: set[bool] = field(default_factory=set)
    updates: int = 0
    optimiser: Any = None
    wrapped: Any = None
    synced: bool | None = None

    def before_wrap(self, model: Any) -> None:
        self.dtypes = {name: stack.dtype_name(p.dtype) for name, p in tiny.named(model)}
        self.trainable = {name for name, p in tiny.named(model) if p.requires_grad}
        layers = observe.quantised_layers(model).values()
        self.quantised = len(layers)
        self.kinds = {observe.kind(layer) for layer in layers}
        self.total_bytes = observe.local_bytes(model)
        for name, module in model.named_modules():
            if name.endswith(".mlp"):
                module.register_forward_pre_hook(partial(self.saw_pass, name))
            if name.endswith("lm_head") or (name.endswith(".k_proj") and not self.quantised):
                module.register_forward_hook(self.saw_output)

    def watch(self, optimiser: Any) -> None:
        self.optimiser = optimiser
        optimiser.register_step_post_hook(self.saw_update)

    def saw_pass(self, layer: str, module: Any, _inputs: Any) -> None:
        import torch

        self.passes.setdefault(layer, []).append((module.training, torch.is_grad_enabled()))

    def saw_output(self, _module: Any, _inputs: Any, output: Any) -> None:
        self.computed_in.add(stack.dtype_name(output.dtype))

    def saw_update(self, *_: Any) -> None:
        self.updates += 1

    def after_forward(self, loss: Any) -> None:
        self.losses.append(loss.item())
        if self.options.strategy == "fsdp2":
            weight = next(p for name, p in self.wrapped.named_parameters() if "layers.0.mlp.gate_proj" in name)
            self.sharded_after_forward.add(hasattr(weight, "full_tensor"))

    def after_training(self, weights: dict[str, Any]) -> None:
        self.dtypes_after = {name: stack.dtype_name(tensor.dtype) for name, tensor in weights.items()}

    def checks(self) -> list[Check]:
        return [check for name in names() if applies(name, self.options) for check in EVIDENCE[name](self)]

    def training_passes(self) -> list[list[bool]]:
        """For each layer, for each of its forward passes in training mode: were gradients on."""
        return [[gradients for training, gradients in seen if training] for seen in self.passes.values()]


def flow(seen: Witness) -> Iterator[Check]:
    yield equal("optimiser steps", seen.updates, tiny.STEPS if seen.options.flow == "train" else 0)


def method(seen: Witness) -> Iterator[Check]:
    if seen.options.method == "full":
        frozen = len(seen.dtypes) - len(seen.trainable) - seen.quantised
        yield equal("frozen parameters", frozen, 0)
        return
    targets = tiny.LAYERS * len(tiny.TARGETS)
    magnitudes = targets if seen.options.method == "dora" else 0
    yield equal("lora_A trained", sum(".lora_A." in name for name in seen.trainable), targets)
    yield equal("DoRA magnitudes trained", sum("magnitude" in name for name in seen.trainable), magnitudes)


def quant(seen: Witness) -> Iterator[Check]:
    expected = 0 if seen.options.quant == "none" else tiny.LAYERS * len(tiny.LINEARS)
    yield equal("quantised layers", seen.quantised, expected)
    if seen.options.quant == "nf4":
        kinds = "+".join(sorted(seen.kinds))
        yield equal("4-bit kind", kinds, f"nf4, nested False, compute {seen.options.load_dtype}")


def quant_storage(seen: Witness) -> Iterator[Check]:
    yield equal("storage dtype", packed_dtype(seen), seen.options.quant_storage)


def packed_dtype(seen: Witness) -> str:
    return seen.dtypes["model.layers.0.self_attn.q_proj.weight"]


def load_dtype(seen: Witness) -> Iterator[Check]:
    yield equal("embedding dtype", seen.dtypes["model.embed_tokens.weight"], seen.options.load_dtype)


def autocast(seen: Witness) -> Iterator[Check]:
    asked = seen.options.autocast
    expected = seen.options.load_dtype if asked == "off" else asked
    yield equal("output dtype of linear layers", "+".join(sorted(seen.computed_in)), expected)


def adapter_fp32(seen: Witness) -> Iterator[Check]:
    if not stack.has_adapter_autocast():
        return  # the version decides; there is nothing to keep to
    found = {dtypes[name] for dtypes in (seen.dtypes, seen.dtypes_after) for name in dtypes if ".lora_" in name}
    yield equal(
        "adapter dtype", "+".join(sorted(found)), "fp32" if seen.options.adapter_fp32 else seen.options.load_dtype
    )


def strategy(seen: Witness) -> Iterator[Check]:
    wanted = {
        "single": None,
        "ddp": "DistributedDataParallel",
        "fsdp1": "FullyShardedDataParallel",
        "fsdp2": "FSDPModule",
    }
    name = wanted[seen.options.strategy]
    if name is not None:
        yield equal("wrapped as", name if name in ancestors(seen.wrapped) else type(seen.wrapped).__name__, name)
    if seen.options.strategy == "ddp":
        yield from sync_module_states(seen)  # which DDP always does
    if seen.options.strategy in ("fsdp1", "fsdp2"):
        share = held_bytes(seen.wrapped, seen.options) * seen.place.world_size / seen.total_bytes
        yield at_most("parameter bytes x ranks / total", share, SHARD_SLACK)


def ancestors(model: Any) -> set[str]:
    return {cls.__name__ for cls in type(model).__mro__}


def held_bytes(model: Any, options: Options) -> int:
    if options.strategy == "fsdp2":
        return observe.local_bytes(model)
    from torch.distributed.fsdp import FullyShardedDataParallel

    flats = [unit._handle.flat_param for unit in FullyShardedDataParallel.fsdp_modules(model) if unit._handle]  # noqa: SLF001 - no public way
    return sum(flat._local_shard.numel() * flat._local_shard.element_size() for flat in flats)  # noqa: SLF001 - as above


def world_size(seen: Witness) -> Iterator[Check]:
    if seen.options.world_size == 1:
        return
    import torch
    import torch.distributed as dist

    mine = torch.tensor(
        seen.losses, dtype=torch.float64, device=None if seen.place.kind == "cpu" else seen.place.device
    )
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    different = len({tuple(losses.tolist()) for losses in everyone})
    yield equal("ranks with a loss of their own", different, seen.options.world_size)


def use_orig_params(seen: Witness) -> Iterator[Check]:
    flat = any("_flat_param" in name for name, _ in seen.wrapped.named_parameters())
    yield equal("parameters keep their names", not flat, seen.options.use_orig_params)


def wrap(seen: Witness) -> Iterator[Check]:
    if seen.options.strategy == "fsdp2":
        units = sum("FSDPModule" in ancestors(module) for module in seen.wrapped.modules())
    else:
        units = sum(type(module).__name__ == "FullyShardedDataParallel" for module in seen.wrapped.modules())
    layers = 0 if seen.options.wrap == "none" else tiny.LAYERS
    if seen.options.wrap == "peft":
        yield at_least("sharded units", units, 1 + layers + 2 * layers * len(tiny.TARGETS))
    else:
        yield equal("sharded units", units, 1 + layers)


def sync_module_states(seen: Witness) -> Iterator[Check]:
    if seen.synced is not None:  # None: nothing was spoilt, so nothing can be told
        yield equal("spoilt weights replaced by rank 0's", seen.synced, bound=True)


def reshard_after_forward(seen: Witness) -> Iterator[Check]:
    found = "+".join(sorted(map(str, seen.sharded_after_forward)))
    yield equal("layer sharded after forward", found, str(seen.options.reshard_after_forward))


def checkpointing(seen: Witness) -> Iterator[Check]:
    once = {"off": [True], "reentrant": [False, True], "non_reentrant": [True, True]}[seen.options.checkpointing]
    words = {True: "with gradients", False: "without"}
    patterns = {", ".join(words[gradients] for gradients in each) for each in seen.training_passes()}
    expected = ", ".join(words[gradients] for gradients in once * tiny.STEPS)
    yield equal("passes of every layer", "+".join(sorted(patterns)), expected)


def optimiser(seen: Witness) -> Iterator[Check]:
    yield equal(
        "optimiser class", type(seen.optimiser).__name__, {"sgd": "SGD", "adamw": "AdamW"}[seen.options.optimiser]
    )


def loop(seen: Witness) -> Iterator[Check]:
    evaluations = sum(not training for passes in seen.passes.values() for training, _ in passes) / tiny.LAYERS
    yield equal("evaluation passes", evaluations, float(tiny.STEPS - 1 if seen.options.loop == "eval" else 0))


EVIDENCE: Mapping[str, Callable[[Witness], Iterator[Check]]] = {
    "flow": flow,
    "method": method,
    "quant": quant,
    "quant_storage": quant_storage,
    "load_dtype": load_dtype,
    "autocast": autocast,
    "adapter_fp32": adapter_fp32,
    "strategy": strategy,
    "world_size": world_size,
    "use_orig_params": use_orig_params,
    "wrap": wrap,
    "sync_module_states": sync_module_states,
    "reshard_after_forward": reshard_after_forward,
    "checkpointing": checkpointing,
    "optimiser": optimiser,
    "loop": loop,
}
