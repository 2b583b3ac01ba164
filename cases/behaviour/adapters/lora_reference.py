"""Expected values for calls with several LoRA adapters: the base's tensors from its files, plus named low-rank updates.

An adapter adds ``scaling * B A`` to a weight (https://arxiv.org/abs/2106.09685), with scaling alpha / r, or alpha / √r
for rsLoRA (https://arxiv.org/abs/2312.03732). Every A and B has the value that belongs to its name, so that the library
and the reference start from the same numbers without a word between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.apply import build
from cases.model import architectures, disk, tiny
from cases.reference import models as references
from cases.reference import tolerance
from cases.reference.network import Batch, Network
from cases.space.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.apply.context import Context

    Tensors = dict[str, Any]
    Placed = Mapping[str, tuple[int, float]]  # the rank and the scaling of an adapter in each layer

NEAR = tolerance.bound("logits", Options())  # relative: float32 through two layers
MERGED = tolerance.merge_bound(Options())  # as above, with each weight rounded once more


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter; ``more`` are further arguments of its configuration."""

    name: str
    rank: int
    alpha: int
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scaling(self) -> float:
        return self.alpha / (self.rank**0.5 if self.more.get("use_rslora") else self.rank)

    def config(self) -> Any:
        from peft import LoraConfig

        chosen = {"task_type": "CAUSAL_LM", "r": self.rank, "lora_alpha": self.alpha, "lora_dropout": 0.0}
        return LoraConfig(**{**chosen, "target_modules": list(self.targets), **self.more})


# Ranks, scalings and targets differ, so that no adapter passes for another. One layer has both.
FIRST = Adapter(name="first", rank=4, alpha=12)
SECOND = Adapter(name="second", rank=8, alpha=4, targets=("v_proj", "up_proj", "down_proj"))


@dataclass(frozen=True)
class Base:
    """A published checkpoint: its configuration, and its tensors in float64."""

    config: Mapping[str, Any]
    tensors: Tensors

    @property
    def transposed(self) -> bool:
        return getattr(references.architecture(self.config), "TRANSPOSED", False)

    def is_table(self, layer: str) -> bool:
        return architectures.ends(layer, references.architecture(self.config).TABLES)

    def layers(self, targets: tuple[str, ...]) -> list[str]:
        """The layers whose last names are these."""
        names = [name.removesuffix(".weight") for name in self.tensors if name.endswith(".weight")]
        return [name for name in names if architectures.ends(name, targets)]

    def placed(self, adapter: Adapter) -> Placed:
        return dict.fromkeys(self.layers(adapter.targets), (adapter.rank, adapter.scaling))

    def sides(self, name: str, placed: Placed) -> Tensors:
        """A and B of every adapted layer by their canonical names in PEFT, float64."""
        found = {}
        for layer, (rank, _) in placed.items():
            shape = self.tensors[f"{layer}.weight"].shape
            is_in_out = self.is_table(layer) or self.transposed
            inner, outer = shape if is_in_out else shape[::-1]
            for side, sizes in zip("AB", ((rank, inner), (outer, rank)), strict=True):
                canonical = self.side(layer, side, name)
                found[canonical] = tiny.values(canonical, sizes).double()
        return found

    def side(self, layer: str, side: str, name: str) -> str:
        """The canonical name of A or B: embeddings keep them as parameters, linear layers in modules."""
        return f"{layer}.lora_embedding_{side}.{name}" if self.is_table(layer) else f"{layer}.lora_{side}.{name}.weight"

    def update(self, name: str, placed: Placed, sides: Tensors | None = None) -> Tensors:
        """What an adapter adds to each weight, as the checkpoint stores it."""
        sides = self.sides(name, placed) if sides is None else sides
        added = {}
        for layer, (_, scaling) in placed.items():
            product = scaling * sides[self.side(layer, "B", name)] @ sides[self.side(layer, "A", name)]
            added[f"{layer}.weight"] = product.T if self.is_table(layer) or self.transposed else product
        return added

    def of(self, adapter: Adapter) -> Tensors:
        return self.update(adapter.name, self.placed(adapter))

    def weights(self, *updates: Tensors) -> Tensors:
        """The tensors with what the updates add."""
        tensors = dict(self.tensors)
        for update in updates:
            for name, added in update.items():
                tensors[name] = tensors[name] + added
        return tensors

    def logits(self, *updates: Tensors, ids: Any = None, real: Any = None) -> Any:
        network = Network(self.config, self.weights(*updates), self.transposed)
        return references.logits(network, Batch(ids=tiny.batch(0) if ids is None else ids, real=real))


def options(model: str, *, tied: bool = False) -> Options:
    return Options().but(flow="load", method="full", model=model, embeddings="tied" if tied else "untied")


def read(ctx: Context, model: str = "llama", *, tied: bool = False) -> Base:
    """The base as its files have it; a tied head shares the embeddings' matrix."""
    folder = architectures.checkpoint(options(model, tied=tied), ctx.cache)
    return Base(disk.config(folder), {name: tensor.double() for name, tensor in disk.tensors(folder).items()})


def loaded(ctx: Context, model: str = "llama", *, tied: bool = False) -> Any:
    """The base as transformers loads it, in float32."""
    chosen = options(model, tied=tied)
    return build.load_from(architectures.checkpoint(chosen, ctx.cache), chosen, ctx.place)


def adapted(ctx: Context, *adapters: Adapter, model: str = "llama", tied: bool = False) -> Any:
    """The base with adapters, the first of them active; their weights have the values of their names."""
    from peft import get_peft_model

    made = get_peft_model(loaded(ctx, model, tied=tied), adapters[0].config(), adapter_name=adapters[0].name)
    for adapter in adapters[1:]:
        made.add_adapter(adapter.name, adapter.config())
    made.set_adapter(adapters[0].name)  # some versions activate what add_adapter adds, see add_second_adapter
    return fill(made)


def fill(model: Any) -> Any:
    """Give A and B of every adapter their values."""
    import torch

    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if ".lora_A." in name or ".lora_B." in name or ".lora_embedding_" in name:
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))
    return model


def logits(model: Any, **arguments: Any) -> Any:
    """The logits of the first batch, or of other ``input_ids``, in the model's present mode."""
    import torch

    device = next(model.parameters()).device
    given = {"input_ids": tiny.batch(0), **arguments}
    moved = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    with torch.no_grad():
        return model(**moved).logits.float().cpu()


def trained(model: Any) -> set[str]:
    """The canonical names of the parameters that require a gradient."""
    return {name for name, parameter in tiny.named(model) if parameter.requires_grad}


def state(model: Any) -> Tensors:
    """A copy of every parameter by its canonical name."""
    return {name: parameter.detach().clone().cpu() for name, parameter in tiny.named(model)}


def changed(before: Tensors, after: Tensors) -> set[str]:
    """The names of the tensors that are not the same bit by bit; all names that only one side has."""
    both = before.keys() & after.keys()
    return (before.keys() ^ after.keys()) | {name for name in both if not before[name].equal(after[name])}


def base_weights(model: Any, base: Base) -> Tensors:
    """The tensors of the base inside an adapted model, by the names in its files."""
    return {name: tensor for name, tensor in state(model).items() if name in base.tensors}


def written(names: Any) -> str:
    """A set of names as one value of a check."""
    return " ".join(sorted(names)) or "none"
