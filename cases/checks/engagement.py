"""Evidence that each option really ran: an option that is silently ignored is the worst kind of incompatibility.

Every option has a row in ``EVIDENCE``; a test insists on it. A row yields checks, measured on this rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.apply import compat, compiling, optimiser_step
from cases.apply.attention import WHOLE, Kernels, implementation
from cases.apply.wrapping import MIN_NUM_PARAMS
from cases.checks import observers, resources, shards
from cases.model import adapters, architectures, heads, prequantised, tiny
from cases.reference import quantisation, tolerance
from cases.space.options import FOUR_BIT, PROMPTS, TRAINING, applies, names
from cases.space.verdict import Check, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cases.space.options import Options
    from cases.space.place import Place

MOST_COARSE = 0.9  # of float32 gradients that are means of bfloat16 ones; measured: 0.45 on 2 ranks
SHARD_SLACK = 1.1  # flat parameters are padded; a tenth more than 1/N is padding, not replication
EXACT = 1e-6  # norms of the same float32 numbers, summed once as they are and once divided by a power of two
CLIP_SLACK = 2e-6 / quantisation.MAX_NORM  # torch adds 1e-6 to the norm before it divides by it


WRAPPERS = {"ddp": "DistributedDataParallel", "fsdp1": "FullyShardedDataParallel"}


@dataclass
class Witness:
    """Sees a case from the moment it is adapted; what wrapping would hide is noted before it."""

    options: Options
    place: Place
    dtypes: dict[str, str] = field(default_factory=dict)
    dtypes_after: dict[str, str] = field(default_factory=dict)
    trainable: set[str] = field(default_factory=set)
    quantised_names: set[str] = field(default_factory=set)
    counted: int = 0  # of them, those that every version quantises
    multiplied_in: set[str] = field(default_factory=set)  # dtypes of what 4-bit weights were multiplied with
    loaded_from: Path = Path()
    kinds: set[str] = field(default_factory=set)  # of 4-bit layers
    total_bytes: int = 0
    numbers: dict[str, int] = field(default_factory=dict)  # of each trained parameter
    itemsizes: dict[str, int] = field(default_factory=dict)
    passes: dict[str, list[tuple[bool, bool]]] = field(default_factory=dict)  # by layer: (training, gradients on)
    computed_in: set[str] = field(default_factory=set)  # output dtypes of plain linear layers
    asked_of: set[str] = field(default_factory=set)  # dtypes that layers are to compute in, by autocast or their inputs
    losses: list[float] = field(default_factory=list)  # of this rank's shard
    sharded_after_forward: set[bool] = field(default_factory=set)
    updates: int = 0
    steps: int = tiny.STEPS  # that are to be seen
    optimiser: Any = None
    wrapped: Any = None
    front: Any = None  # what drives the training: None for the plain loop, the Accelerator or the Trainer
    synced: bool | None = None
    model_class: str = ""
    rows: str = ""  # of embeddings and head, and what the config says
    shared: list[bool] = field(default_factory=list)  # whether head and embeddings are one, before and after training
    attention: str = ""  # the implementation that the config ended with
    kernels: Kernels = field(default_factory=Kernels)
    unallocated: int = 0  # parameters that this rank had no memory for before the wrap
    coarse_share: float = 0.0  # of gradient entries: those that bfloat16 holds
    held_gradients: int = 0  # entries of gradients that this rank held after a backward pass
    total_entries: int = 0  # of all parameters
    saved_entries: int | None = None  # of the model's state that this rank held to save it
    root_whole: bool | None = None  # when a generation began
    gradient_storages: tuple[int, int] = (0, 0)  # gradients of this rank, and the storages that they lie in
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
        self.rows = heads.rows(model, self.options)
        self.shared.append(heads.shares_head(model, self.options))
        spec = architectures.spec(self.options)
        plain = f".{spec.plain.rpartition('.')[2]}"
        self.total_entries = sum(p.numel() for p in model.parameters())
        self.unallocated = sum(p.is_meta for p in model.parameters())
        for name, module in model.named_modules():
            if name.endswith(spec.feed_forward):
                module.register_forward_pre_hook(partial(self.saw_pass, name))
            if name.endswith("lm_head") or (name.endswith(plain) and not self.quantised_names):
                module.register_forward_hook(self.saw_output)
        if self.options.attn_implementation != "default":
            self.kernels.watch(next(m for name, m in model.named_modules() if name.endswith(spec.attention)))

    def forget(self, steps: int) -> None:
        """Begin to count anew: so many steps are to come."""
        self.passes.clear()
        self.losses.clear()
        self.sharded_after_forward.clear()
        self.updates, self.steps = 0, steps
        self.trace = optimiser_step.Trace()

    def watch(self, optimiser: Any) -> None:
        self.optimiser = optimiser
        optimiser.register_step_post_hook(self.saw_update)

    def saw_pass(self, layer: str, module: Any, inputs: Any) -> None:
        import torch

        self.asked_of.add(compat.dtype_name(compat.autocast_dtype(self.place.kind) or inputs[0].dtype))
        self.passes.setdefault(layer, []).append((module.training, torch.is_grad_enabled()))

    def saw_output(self, _module: Any, _inputs: Any, output: Any) -> None:
        self.computed_in.add(compat.dtype_name(output.dtype))

    def saw_update(self, *_: Any) -> None:
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
        optimiser_step.saw_gradients(gradients, self.trace)
        if not self.is_wrapped():
            return
        self.trace.gradient_bytes = resources.gradient_bytes(self.wrapped, self.options)
        self.coarse_share = shards.coarse_share(gradients)
        held = shards.held_gradients(self.wrapped)
        self.held_gradients = sum(each.numel() for each in held)
        self.gradient_storages = (len(held), len({each.untyped_storage().data_ptr() for each in held}))

    def after_micro_batch(self, *, last: bool) -> None:
        self.trace.micro_batches += 1
        if not last and optimiser_step.reduced(self.options):
            self.trace.kept_local.append(optimiser_step.are_local(self.wrapped, self.options, self.place))

    def after_training(self, weights: dict[str, Any]) -> None:
        self.dtypes_after = {name: compat.dtype_name(tensor.dtype) for name, tensor in weights.items()}
        with observers.unsharded(self.wrapped, self.options):
            self.shared.append(heads.shares_head(self.wrapped, self.options))

    def is_wrapped(self) -> bool:
        """Whether the model is wrapped as was asked."""
        name = wrapper(self.options)
        return name is None or name in ancestors(self.wrapped)

    def checks(self) -> list[Check]:
        """Of a model that is wrapped otherwise, only that is said, and what does not hang on the wrapper."""
        told = names() if self.is_wrapped() else [name for name in names() if applies(name, alone(self.options))]
        evidence = [check for name in told if applies(name, self.options) for check in EVIDENCE[name](self)]
        return [*evidence, *resources_held(self)]

    def training_passes(self) -> list[list[bool]]:
        """For each layer, for each of its forward passes in training mode: were gradients on."""
        return [[gradients for training, gradients in seen if training] for seen in self.passes.values()]


def flow(seen: Witness) -> Iterator[Check]:
    yield equal("optimiser steps", seen.updates, seen.steps if seen.options.flow in TRAINING else 0)


def method(seen: Witness) -> Iterator[Check]:
    if seen.options.method == "full":
        frozen = len(seen.dtypes) - len(seen.trainable) - len(seen.quantised_names)
        yield equal("frozen parameters", frozen, 0)
        return
    places = 1 if seen.options.method in PROMPTS else architectures.spec(seen.options).adapted
    parts = adapters.PARTS[seen.options.method]
    embedded = {name for name in seen.trainable if "embed_tokens" in name}
    for part in parts:
        yield equal(f"{part} trained", sum(part in name.split(".") for name in seen.trainable - embedded), places)
    beside = {name for name in seen.trainable - embedded if not set(name.split(".")) & set(parts)}
    yield equal("trained beside the adapter", len(beside), int(seen.options.modules_to_save == "lm_head"))


def modules_to_save(seen: Witness) -> Iterator[Check]:
    heads = {name for name in seen.trainable if name.startswith("lm_head.")}
    expected = adapters.MODULES_TO_SAVE[seen.options.modules_to_save]
    yield equal("trained modules to save", joined_names(heads), joined_names(expected))


def target_embeddings(seen: Witness) -> Iterator[Check]:
    embedded = {name for name in seen.trainable if name.startswith("model.embed_tokens.")}
    expected = set(adapters.EMBEDDING_PARAMETERS) if seen.options.target_embeddings else set()
    if expected and seen.options.method == "dora":
        expected.add("model.embed_tokens.lora_magnitude_vector")
    yield equal("trained embedding adapters", joined_names(embedded), joined_names(expected))


def joined_names(names: Iterable[str]) -> str:
    return "+".join(sorted(names))


def model(seen: Witness) -> Iterator[Check]:
    yield equal("class of the model", seen.model_class, architectures.spec(seen.options).named[1])


def embeddings(seen: Witness) -> Iterator[Check]:
    tied, rows = architectures.is_tied(seen.options), architectures.vocabulary(seen.options)
    found = "+".join(sorted({str(shared) for shared in seen.shared}))
    yield equal("head shares the embeddings", found, str(tied))
    yield equal("rows of embeddings, head and config", seen.rows, f"{rows}+{rows}+{rows}")


def quant(seen: Witness) -> Iterator[Check]:
    options = seen.options
    skipped = tiny.LAYERS if options.llm_int8_skip_modules else 0
    expected = 0 if options.quant == "none" else architectures.spec(options).quantised - skipped
    yield equal("quantised layers", seen.counted, expected)
    if options.quant in FOUR_BIT:
        yield equal("4-bit kind", "+".join(sorted({kind.split(",")[0] for kind in seen.kinds})), options.quant)


def double_quant(seen: Witness) -> Iterator[Check]:
    nested = "+".join(sorted({kind.split(", ")[1] for kind in seen.kinds}))
    yield equal("absmaxes", nested, f"nested {seen.options.bnb_4bit_use_double_quant}")


def skip_modules(seen: Witness) -> Iterator[Check]:
    if not seen.options.llm_int8_skip_modules:
        return  # the number of quantised layers says it
    yield equal(f"quantised {tiny.SKIPPED}", sum(tiny.SKIPPED in name for name in seen.quantised_names), 0)
    dtypes = {kept for name, kept in seen.dtypes.items() if name.endswith(f"{tiny.SKIPPED}.weight")}
    yield equal(f"dtype of {tiny.SKIPPED}", "+".join(sorted(dtypes)), seen.options.torch_dtype)


def prequantised_checkpoint(seen: Witness) -> Iterator[Check]:
    found = prequantised.packed_on_disk(seen.loaded_from)
    yield equal("weights quantised on disk", found, len(seen.quantised_names) if seen.options.prequantised else 0)


def compute_dtype(seen: Witness) -> Iterator[Check]:
    kinds = "+".join(sorted({kind.split(", ")[2] for kind in seen.kinds}))
    yield equal("arithmetic of 4-bit layers", kinds, f"compute {compat.compute_dtype(seen.options)}")
    if seen.multiplied_in:
        found = "+".join(sorted(seen.multiplied_in))
        yield equal("dtype of 4-bit products", found, compat.compute_dtype(seen.options))


def quant_storage(seen: Witness) -> Iterator[Check]:
    yield equal("storage dtype", packed_dtype(seen), seen.options.bnb_4bit_quant_storage)


def packed_dtype(seen: Witness) -> str:
    return seen.dtypes[f"{architectures.spec(seen.options).plain}.weight"]


def load_dtype(seen: Witness) -> Iterator[Check]:
    yield equal("embedding dtype", seen.dtypes[architectures.spec(seen.options).embedding], seen.options.torch_dtype)


def autocast(seen: Witness) -> Iterator[Check]:
    asked = seen.options.autocast
    expected = seen.options.torch_dtype if asked == "off" else asked
    if seen.options.mixed_precision != "off":
        expected = "bf16"
    if (
        seen.quantised_names and not seen.computed_in
    ):  # TRL multiplies with the head's weights itself: no plain layer ran
        yield equal("dtype asked of layers", "+".join(sorted(seen.asked_of)), expected)
        return
    yield equal("output dtype of linear layers", "+".join(sorted(seen.computed_in)), expected)
    if asked == "fp16":
        yield equal("steps with a scaled loss", sum(scale > 1 for scale in seen.trace.scales), seen.steps)
    if asked == "fp16" and seen.options.front_end == "loop":  # others unscale out of our sight
        pairs = zip(seen.trace.unscaled_by, seen.trace.scales, strict=True)
        off = max((abs(found / scale - 1) for found, scale in pairs), default=float("inf"))
        yield at_most("gradients unscaled by the scale", off, EXACT)


def autocast_adapter_dtype(seen: Witness) -> Iterator[Check]:
    if not compat.has_adapter_autocast():
        return  # the version decides; there is nothing to keep to
    found = {
        dtypes[name]
        for dtypes in (seen.dtypes, seen.dtypes_after)
        for name in dtypes
        if name in seen.trainable and tiny.is_adapter(name)
    }
    yield equal(
        "adapter dtype",
        "+".join(sorted(found)),
        "fp32" if seen.options.autocast_adapter_dtype else seen.options.torch_dtype,
    )


def strategy(seen: Witness) -> Iterator[Check]:
    name = wrapper(seen.options)
    if name is not None:
        yield equal("wrapped as", name if name in ancestors(seen.wrapped) else type(seen.wrapped).__name__, name)
    if seen.options.strategy == "ddp":
        yield from sync_module_states(seen)  # which DDP always does
    if seen.options.strategy in ("fsdp1", "fsdp2"):
        share = held_bytes(seen.wrapped, seen.options) * seen.place.world_size / seen.total_bytes
        yield at_most("parameter bytes x ranks / total", share, shards.copies(seen.options) * SHARD_SLACK)


def alone(options: Options) -> Options:
    """The same without ranks: what applies to it hangs on no wrapper, but for the wrapper's own row."""
    return replace(options, strategy="single")


def wrapper(options: Options) -> str | None:
    """The class that a model becomes an instance of."""
    return compat.fsdp2_class().__name__ if options.strategy == "fsdp2" else WRAPPERS.get(options.strategy)


def ancestors(model: Any) -> set[str]:
    return {cls.__name__ for cls in type(model).__mro__}


def held_bytes(model: Any, options: Options) -> int:
    if options.strategy == "fsdp2":
        return observers.local_bytes(model)
    flats = observers.flat_parameters(model)
    return sum(flat._local_shard.numel() * flat._local_shard.element_size() for flat in flats)  # noqa: SLF001 - no public way


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
    if seen.options.auto_wrap_policy == "size":
        sizes, whole_layers = shards.inner_units(seen.wrapped)
        yield at_least("parameters of the smallest inner unit", min(sizes, default=0), MIN_NUM_PARAMS)
        yield equal("units that are a decoder layer", whole_layers, 0)
        return
    units = list(sharded_units(seen))
    layers = 0 if seen.options.auto_wrap_policy == "none" else architectures.spec(seen.options).blocks
    if seen.options.auto_wrap_policy == "peft":
        yield at_least("sharded units", len(units), 1 + layers + units_of_adapter(seen.options))
    elif seen.options.front_end == "loop":
        yield equal("sharded units", len(units), 1 + layers)
    else:  # accelerate makes units of embeddings and heads as well, the Trainer of each part of an adapter
        yield at_least("sharded units", len(units), 1 + layers)
        found = sum(name.endswith(architectures.spec(seen.options).block) for name in units)
        yield equal("units that are a decoder layer", found, layers)


def sharded_units(seen: Witness) -> Iterator[str]:
    """What each unit of FSDP shards: the class of its module, which FSDP2 writes its own name before."""
    name = wrapper(seen.options)
    for module in seen.wrapped.modules():
        if seen.options.strategy == "fsdp2" and name in ancestors(module):
            yield type(module).__name__
        elif seen.options.strategy == "fsdp1" and type(module).__name__ == "FullyShardedDataParallel":
            yield type(module.module).__name__


def units_of_adapter(options: Options) -> int:
    """PEFT's wrap policy puts each trained module into a unit; parts that are bare parameters stay with their layer."""
    if options.method in ("full", "adalora"):
        return 0
    parts = [part for part in adapters.PARTS[options.method] if part in ("lora_A", "lora_B")]
    return 1 if options.method in PROMPTS else len(parts) * architectures.spec(options).adapted


def sync_module_states(seen: Witness) -> Iterator[Check]:
    if seen.synced is not None:  # None: nothing was spoilt, so nothing can be told
        yield equal("spoilt weights replaced by rank 0's", seen.synced, bound=True)


def reshard_after_forward(seen: Witness) -> Iterator[Check]:
    found = "+".join(sorted(map(str, seen.sharded_after_forward)))
    yield equal("layer sharded after forward", found, str(seen.options.reshard_after_forward))


def sharding(seen: Witness) -> Iterator[Check]:
    if seen.options.auto_wrap_policy != "none":  # the root's weights are always kept for its backward pass
        found = "+".join(sorted(map(str, seen.sharded_after_forward)))
        yield equal("inner units sharded after forward", found, str(seen.options.sharding_strategy == "full_shard"))
    if seen.options.sharding_strategy == "no_shard":
        share = held_bytes(seen.wrapped, seen.options) / seen.total_bytes
        yield at_least("parameter bytes / total", share, 1.0)


def mesh(seen: Witness) -> Iterator[Check]:
    """Which ranks share a copy, and that gradients and the optimiser's state are cut as the parameters are."""
    ranks, copies = seen.place.world_size, shards.copies(seen.options)
    yield equal("copies x shards", shards.mesh_shape(seen.wrapped), f"{copies} x {ranks // copies}")
    total = shards.trained_entries(seen.wrapped)
    held = {"gradients": seen.held_gradients, **shards.held_state(seen.optimiser)}
    for name, entries in shards.over_all_ranks(held, seen.place).items():
        share = entries / total
        yield at_least(f"{name} on all ranks / trained parameters", share, float(copies))
        yield at_most(f"{name} on all ranks / trained parameters", share, copies * SHARD_SLACK)


def mixed_precision(seen: Witness) -> Iterator[Check]:
    """The dtype of the reduction shows in the gradients: what was added up in bfloat16 is a bfloat16 number.

    A mean of bfloat16 numbers that was computed in float32 needs more bits in about half of its entries, or more.
    """
    asked = seen.options.mixed_precision
    full = all(seen.dtypes[name] == "fp32" for name in seen.trainable)  # else the gradient is rounded afterwards
    if asked == "off" or not full or seen.options.gradient_accumulation_steps > 1 or seen.options.clip_grad_norm:
        return
    if asked == "bf16":
        yield at_least("gradient entries that bfloat16 holds", seen.coarse_share, 1.0)
    else:
        yield at_most("gradient entries that bfloat16 holds", seen.coarse_share, MOST_COARSE)


def cpu_offload(seen: Witness) -> Iterator[Check]:
    if seen.place.kind == "cpu":
        return  # skipped on such a machine: there is nothing to tell
    devices = {tensor.device.type for tensor in shards.resting(seen.wrapped, seen.optimiser)}
    yield equal("devices of parameters and optimiser state", "+".join(sorted(devices)), where(seen))


def where(seen: Witness) -> str:
    return "cpu" if seen.options.cpu_offload else "cuda"


def ram_efficient(seen: Witness) -> Iterator[Check]:
    expected = len(seen.dtypes) if seen.options.cpu_ram_efficient_loading and seen.place.rank > 0 else 0
    yield equal("parameters without memory before the wrap", seen.unallocated, expected)
    if seen.options.cpu_ram_efficient_loading:
        yield equal("weights as rank 0's", seen.synced is True, bound=True)


def state_dict(seen: Witness) -> Iterator[Check]:
    """What this rank held when the model was saved: all of it, nothing, or its shard."""
    if seen.saved_entries is None:
        return  # nothing was saved
    kind, copies = seen.options.state_dict_type, shards.copies(seen.options)
    share = seen.saved_entries / seen.total_entries
    expected = 1.0
    if kind == "sharded":
        expected = copies / seen.place.world_size
    elif kind != "full_on_device" and seen.place.rank > 0:
        if copies > 1:
            return  # a rank 0 of each copy: what else they keep costs memory, and changes nothing
        expected = 0.0
    yield at_least("share of the model that this rank held to save it", share, expected / SHARD_SLACK)
    yield at_most("share of the model that this rank held to save it", share, expected * SHARD_SLACK)


def gathered(seen: Witness) -> Iterator[Check]:
    if seen.root_whole is not None and seen.options.summon_full_params:
        yield equal("root's weights whole before the generation", seen.root_whole, bound=True)


def find_unused_parameters(seen: Witness) -> Iterator[Check]:
    """What DDP's reducer was made with, and what it does: a search for unused parameters keeps the first buckets."""
    asked = seen.options.find_unused_parameters
    told = shards.reducer(seen.wrapped)
    yield equal("the reducer looks for unused parameters", bool(told.get("find_unused_parameters")), asked)
    if seen.steps == tiny.STEPS and not seen.options.static_graph:  # the statistics are a sample of steps
        yield equal("the reducer rebuilt its buckets", bool(told.get("has_rebuilt_buckets")), not asked)


def static_graph(seen: Witness) -> Iterator[Check]:
    told = shards.reducer(seen.wrapped)
    yield equal("the reducer has a static graph", bool(told.get("static_graph")), seen.options.static_graph)


def gradient_as_bucket_view(seen: Witness) -> Iterator[Check]:
    gradients, storages = seen.gradient_storages
    shared = storages < gradients
    yield equal("gradients share storages", shared, seen.options.gradient_as_bucket_view)


def checkpointing(seen: Witness) -> Iterator[Check]:
    once = {"off": [True], "reentrant": [False, True], "non_reentrant": [True, True]}[
        seen.options.gradient_checkpointing
    ]
    words = {True: "with gradients", False: "without"}
    patterns = {", ".join(words[gradients] for gradients in each) for each in seen.training_passes()}
    expected = ", ".join(words[gradients] for gradients in once * seen.steps * seen.options.gradient_accumulation_steps)
    yield equal("passes of every layer", "+".join(sorted(patterns)), expected)


def optimiser(seen: Witness) -> Iterator[Check]:
    classes = {"sgd": "SGD", "adamw": "AdamW", "adamw_8bit": "AdamW8bit", "paged_adamw_8bit": "PagedAdamW8bit"}
    yield equal("optimiser class", type(seen.optimiser).__name__, classes[seen.options.optim])
    if seen.options.optim.endswith("8bit"):
        moments = [state[name] for state in seen.optimiser.state.values() for name in ("state1", "state2")]
        yield equal("dtypes of the moments", "+".join(sorted({compat.dtype_name(m.dtype) for m in moments})), "uint8")
        yield equal("paged", bool(seen.optimiser.is_paged), seen.options.optim.startswith("paged"))


def stepping(seen: Witness) -> Iterator[Check]:
    if seen.options.optim_implementation == "default":
        return
    rule = {"sgd": "sgd", "adamw": "adamw"}[seen.options.optim]
    ran = {"foreach": "aten._foreach_add_", "fused": f"aten._fused_{rule}_"}[seen.options.optim_implementation]
    names = {name for name in seen.trace.operations if name.startswith(("aten._foreach", "aten._fused"))}
    yield equal(f"{ran} in the optimiser's step", any(name.startswith(ran) for name in names), bound=True)


def resources_held(seen: Witness) -> Iterator[Check]:
    """Gradients and optimiser state: sharded or whole, as the strategy promises."""
    options, place = seen.options, seen.place
    if seen.trace.gradient_bytes is None or options.front_end != "loop":
        return
    yield from resources.promised("gradient", *seen.trace.gradient_bytes, options, place)
    whole = resources.whole_state_bytes(seen.numbers, seen.itemsizes, options)
    yield from resources.promised("optimiser state", resources.state_bytes(seen.optimiser), whole, options, place)


def compiled(seen: Witness) -> Iterator[Check]:
    graphs = compiling.GRAPHS
    if not seen.options.torch_compile:
        yield equal("compiled graphs", graphs.made, 0)
        return
    yield at_least("operations in the largest graph", graphs.largest, compiling.FEWEST_CALLS)
    yield at_least("runs of compiled graphs", graphs.runs, seen.steps * seen.options.gradient_accumulation_steps)


def accumulation(seen: Witness) -> Iterator[Check]:
    yield equal("micro-batches", seen.trace.micro_batches, seen.steps * seen.options.gradient_accumulation_steps)
    if optimiser_step.reduced(seen.options):
        kept = seen.steps * (seen.options.gradient_accumulation_steps - 1)
        yield equal("micro-batches whose gradients stayed local", sum(seen.trace.kept_local), kept)


def clip(seen: Witness) -> Iterator[Check]:
    if not seen.options.clip_grad_norm:
        return
    bound = quantisation.MAX_NORM
    yield equal("steps with a norm above the bound", sum(norm > bound for norm in seen.trace.norms), seen.steps)
    off = max((abs(norm / bound - 1) for norm in seen.trace.clipped_norms), default=float("inf"))
    yield at_most("clipped norm off the bound", off, CLIP_SLACK + tolerance.bound("gradient scale", seen.options))


def attention(seen: Witness) -> Iterator[Check]:
    asked = seen.options.attn_implementation
    if asked == "default":
        return  # the version decides; there is nothing to keep to
    kernel = seen.kernels.ran
    yield equal("attention implementation", seen.attention, implementation(seen.options))
    if asked == "sdpa":
        yield equal("attention by torch's own function", WHOLE in seen.kernels.operators, bound=True)
    else:
        yield equal("attention kernel", kernel, asked)


def front_end(seen: Witness) -> Iterator[Check]:
    """Accelerate holds the optimiser that stepped; the trainer counted its steps."""
    wanted = {"loop": "NoneType", "accelerate": "Accelerator", "trainer": "Trainer", "sft": "SFTTrainer"}
    name = wanted[seen.options.front_end]
    yield equal("driven by", name if name in ancestors(seen.front) else type(seen.front).__name__, name)
    if name == "Accelerator":
        held = [each.optimizer for each in seen.front._optimizers]  # noqa: SLF001 - no public way
        yield equal("the optimiser is in accelerate's hands", any(each is seen.optimiser for each in held), bound=True)
    if name.endswith("Trainer"):
        yield equal("steps that the trainer counted", seen.front.state.global_step, tiny.STEPS)


def loop(seen: Witness) -> Iterator[Check]:
    """Passes of the last layer, which runs once per evaluation and once per generated token."""
    passes = list(seen.passes.values())[-1] if seen.passes else []
    between = {"plain": 0, "eval": 1, "generate": tiny.NEW_TOKENS}[seen.options.loop]
    yield equal("evaluation passes", sum(not training for training, _ in passes), between * (seen.steps - 1))


EVIDENCE: Mapping[str, Callable[[Witness], Iterator[Check]]] = {
    "flow": flow,
    "method": method,
    "modules_to_save": modules_to_save,
    "target_embeddings": target_embeddings,
    "model": model,
    "embeddings": embeddings,
    "quant": quant,
    "bnb_4bit_quant_storage": quant_storage,
    "bnb_4bit_use_double_quant": double_quant,
    "llm_int8_skip_modules": skip_modules,
    "prequantised": prequantised_checkpoint,
    "torch_dtype": load_dtype,
    "bnb_4bit_compute_dtype": compute_dtype,
    "autocast": autocast,
    "autocast_adapter_dtype": autocast_adapter_dtype,
    "strategy": strategy,
    "world_size": world_size,
    "use_orig_params": use_orig_params,
    "auto_wrap_policy": wrap,
    "sharding_strategy": sharding,
    "sync_module_states": sync_module_states,
    "reshard_after_forward": reshard_after_forward,
    "device_mesh": mesh,
    "mixed_precision": mixed_precision,
    "cpu_offload": cpu_offload,
    "cpu_ram_efficient_loading": ram_efficient,
    "state_dict_type": state_dict,
    "summon_full_params": gathered,
    "find_unused_parameters": find_unused_parameters,
    "static_graph": static_graph,
    "gradient_as_bucket_view": gradient_as_bucket_view,
    "gradient_checkpointing": checkpointing,
    "gradient_accumulation_steps": accumulation,
    "clip_grad_norm": clip,
    "attn_implementation": attention,
    "optim": optimiser,
    "optim_implementation": stepping,
    "front_end": front_end,
    "loop": loop,
    "torch_compile": compiled,
}
