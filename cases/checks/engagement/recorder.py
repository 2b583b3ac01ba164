"""Records what shows that the options of a case took effect, from the adapted model to the end of training."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.apply import compat, optimiser_step
from cases.apply.attention import Kernels
from cases.checks import observers, resources, shards
from cases.model import architectures, heads, tiny
from cases.space.options import FOUR_BIT

if TYPE_CHECKING:
    from cases.space.options import Options
    from cases.space.place import Place

WRAPPERS = {"ddp": "DistributedDataParallel", "fsdp1": "FullyShardedDataParallel"}


@dataclass
class EngagementRecorder:
    """Records a case from the adapted model on, and before wrapping what it would hide."""

    options: Options
    place: Place
    dtypes: dict[str, str] = field(default_factory=dict)
    dtypes_after: dict[str, str] = field(default_factory=dict)
    trainable: set[str] = field(default_factory=set)
    quantised_names: set[str] = field(default_factory=set)
    counted: int = 0  # the quantised layers that every version quantises
    multiplied_in: set[str] = field(default_factory=set)  # dtypes of the inputs of 4-bit layers
    loaded_from: Path = Path()
    kinds: set[str] = field(default_factory=set)  # of 4-bit layers
    total_bytes: int = 0
    numbers: dict[str, int] = field(default_factory=dict)  # of each trained parameter
    itemsizes: dict[str, int] = field(default_factory=dict)
    passes: dict[str, list[tuple[bool, bool]]] = field(default_factory=dict)  # by layer: (training, gradients on)
    computed_in: set[str] = field(default_factory=set)  # output dtypes of plain linear layers
    requested_dtypes: set[str] = field(
        default_factory=set
    )  # dtypes that layers are to compute in, by autocast or their inputs
    losses: list[float] = field(default_factory=list)  # of this rank's shard
    sharded_after_forward: set[bool] = field(default_factory=set)
    updates: int = 0
    steps: int = tiny.STEPS  # the expected number of optimiser steps
    optimiser: Any = None
    wrapped: Any = None
    front: Any = None  # the Accelerator or the Trainer; None for the plain loop
    synced: bool | None = None
    model_class: str = ""
    rows: str = ""  # of embeddings and head, and what the config says
    shared: list[bool] = field(default_factory=list)  # whether head and embeddings are one, before and after training
    attention: str = ""  # the implementation in the loaded config
    rope_type: str = ""  # of the loaded config
    row_lengths: set[int] = field(default_factory=set)  # of the inputs of feed-forward layers
    attention_masked: set[bool] = field(default_factory=set)  # whether attention layers received a mask
    kernels: Kernels = field(default_factory=Kernels)
    unallocated: int = 0  # parameters without memory on this rank before wrapping
    coarse_share: float = 0.0  # the share of gradient entries that bfloat16 represents exactly
    held_gradients: int = 0  # entries of gradients that this rank held after a backward pass
    total_entries: int = 0  # of all parameters
    saved_entries: int | None = None  # entries of the model's state that this rank held while saving
    root_whole: bool | None = None  # when a generation began
    gradient_storages: tuple[int, int] = (0, 0)  # the number of gradients of this rank, and of their storages
    trace: optimiser_step.Trace = field(default_factory=optimiser_step.Trace)

    def before_wrap(self, model: Any) -> None:
        self.dtypes = {name: compat.dtype_name(p.dtype) for name, p in tiny.named(model)}
        self.trainable = {name for name, p in tiny.named(model) if p.requires_grad}
        layers = observers.quantised_layers(model)
        uncounted = tuple(f"{name}.weight" for name in architectures.spec(self.options).uncounted)
        self.quantised_names = set(layers)
        self.counted = sum(not architectures.ends(name, uncounted) for name in layers)
        self.kinds = {observers.kind(layer) for layer in layers.values()}
        self.loaded_from = Path(model.config._name_or_path)  # noqa: SLF001 - no public name for where it came from
        if self.options.quant in FOUR_BIT and self.options.bnb_4bit_compute_dtype != "load":
            self.multiplied_in = observers.products_of_4bit()
        self.total_bytes = observers.local_bytes(model)
        self.numbers = {name: p.numel() for name, p in tiny.named(model) if p.requires_grad}
        self.itemsizes = {name: p.element_size() for name, p in tiny.named(model) if p.requires_grad}
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.model_class, self.attention = type(base).__name__, base.config._attn_implementation  # noqa: SLF001 - no public way
        self.rope_type = rope_type(base.config)
        self.rows = heads.rows(model, self.options)
        self.shared.append(heads.shares_head(model, self.options))
        spec = architectures.spec(self.options)
        plain = f".{spec.plain.rpartition('.')[2]}"
        self.total_entries = sum(p.numel() for p in model.parameters())
        self.unallocated = sum(p.is_meta for p in model.parameters())
        for name, module in model.named_modules():
            if name.endswith(spec.feed_forward):
                module.register_forward_pre_hook(partial(self.record_pass, name))
            if name.endswith("lm_head") or (name.endswith(plain) and not self.quantised_names):
                module.register_forward_hook(self.record_output)
            if name.endswith(spec.attention) and self.options.data in ("padded_right", "padded_left", "packed"):
                module.register_forward_pre_hook(self.record_mask, with_kwargs=True)
        if self.options.attn_implementation != "default":
            self.kernels.watch(next(m for name, m in model.named_modules() if name.endswith(spec.attention)))

    def restart(self, steps: int) -> None:
        """Reset the counters before the next ``steps`` steps."""
        self.passes.clear()
        self.losses.clear()
        self.sharded_after_forward.clear()
        self.updates, self.steps = 0, steps
        self.trace = optimiser_step.Trace()

    def watch(self, optimiser: Any) -> None:
        self.optimiser = optimiser
        optimiser.register_step_post_hook(self.count_update)

    def record_pass(self, layer: str, module: Any, inputs: Any) -> None:
        import torch

        self.requested_dtypes.add(compat.dtype_name(compat.autocast_dtype(self.place.kind) or inputs[0].dtype))
        self.passes.setdefault(layer, []).append((module.training, torch.is_grad_enabled()))
        if module.training:
            self.row_lengths.add(inputs[0].shape[1])

    def record_output(self, _module: Any, _inputs: Any, output: Any) -> None:
        self.computed_in.add(compat.dtype_name(output.dtype))

    def record_mask(self, _module: Any, _inputs: Any, named: dict[str, Any]) -> None:
        self.attention_masked.add(named.get("attention_mask") is not None)

    def count_update(self, *_: Any) -> None:
        self.updates += 1

    def after_forward(self, loss: Any) -> None:
        self.losses.append(loss.item())
        if not self.is_wrapped():
            return
        if self.options.strategy == "fsdp2":
            plain = architectures.spec(self.options).plain
            weight = next(p for name, p in self.wrapped.named_parameters() if plain in name)
            self.sharded_after_forward.add(hasattr(weight, "full_tensor"))
        if self.options.strategy == "fsdp1":
            self.sharded_after_forward |= shards.inner_units_sharded(self.wrapped)

    def after_backward(self, gradients: dict[str, Any]) -> None:
        """Takes the whole gradients, float32, by canonical name."""
        optimiser_step.record_gradients(gradients, self.trace)
        if not self.is_wrapped():
            return
        self.trace.gradient_bytes = resources.gradient_bytes(self.wrapped, self.options)
        self.coarse_share = shards.coarse_share(gradients)
        held = shards.held_gradients(self.wrapped)
        self.held_gradients = sum(each.numel() for each in held)
        self.gradient_storages = (len(held), len({each.untyped_storage().data_ptr() for each in held}))

    def after_micro_batch(self, *, last: bool) -> None:
        self.trace.micro_batches += 1
        if not last and optimiser_step.exchanges_gradients(self.options):
            self.trace.kept_local.append(optimiser_step.gradients_are_local(self.wrapped, self.options, self.place))

    def after_training(self, weights: dict[str, Any]) -> None:
        self.dtypes_after = {name: compat.dtype_name(tensor.dtype) for name, tensor in weights.items()}
        with observers.unsharded(self.wrapped, self.options):
            self.shared.append(heads.shares_head(self.wrapped, self.options))

    def is_wrapped(self) -> bool:
        """Return whether the model has the wrapper of its strategy."""
        name = wrapper_class(self.options)
        return name is None or name in class_names(self.wrapped)

    def training_passes(self) -> list[list[bool]]:
        """For each layer, whether gradients were on in each of its forward passes in training mode."""
        return [[gradients for training, gradients in passes if training] for passes in self.passes.values()]


def wrapper_class(options: Options) -> str | None:
    """The class name of the strategy's wrapper; None for a single process."""
    return compat.fsdp2_class().__name__ if options.strategy == "fsdp2" else WRAPPERS.get(options.strategy)


def class_names(model: Any) -> set[str]:
    return {cls.__name__ for cls in type(model).__mro__}


def rope_type(config: Any) -> str:
    """The scaling of rotary positions in a config: transformers before 5 calls it ``rope_scaling``."""
    stated = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return str(stated.get("rope_type") or stated.get("type") or "")
