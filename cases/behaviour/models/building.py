"""Builders for calls about models: checkpoints with a changed configuration, and their reference network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.model import architectures, data, disk, experts, shapes, tiny
from cases.reference import models, tolerance, twin
from cases.reference.network import Batch, Network
from cases.space.options import Options
from cases.space.verdict import Check, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cases.apply.context import Context

    Shapes = Mapping[str, tuple[int, ...]]

REMOVED = ...  # in changes of a configuration: this field is not stated
LAYERS = 4  # for patterns of layers
# What makes a Llama a Granite. No multiplier is 1 or equals another, and that of scores is not 1 / sqrt(width).
GRANITE: Mapping[str, Any] = {
    "model_type": "granite",
    "architectures": ["GraniteForCausalLM"],
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.6,
    "logits_scaling": 1.7,
}
ZERO = 1e-12  # relative: what is left of a float64 gradient that is zero


@dataclass(frozen=True)
class Variant:
    """A published checkpoint of an architecture, with ``changes`` of its configuration.

    ``heads``: the shapes of further tensors, by name; ``prefix`` of the others, as a model with such a head saves them.
    """

    model: str = "llama"
    changes: Mapping[str, Any] = field(default_factory=dict)
    tied: bool = False
    heads: Shapes = field(default_factory=dict)
    prefix: str = ""

    @property
    def options(self) -> Options:
        return options(self.model).but(embeddings="tied" if self.tied else "untied")

    def settings(self) -> dict[str, Any]:
        usual = architectures.settings(self.options, tiny.VOCABULARY)
        return {name: value for name, value in {**usual, **self.changes}.items() if value is not REMOVED}

    def written(self, ctx: Context, name: str) -> Path:
        """The checkpoint on disk, in the cell's folder."""
        settings = self.settings()
        tensors = {f"{self.prefix}{each}": self.values(each, shape) for each, shape in shapes.shapes(settings).items()}
        tensors.update({each: self.values(each, shape) for each, shape in self.heads.items()})
        folder = ctx.kept / f"{self.model}-{name.replace(' ', '-')}"
        disk.write(folder, settings, tensors)
        return folder

    def values(self, name: str, shape: tuple[int, ...]) -> Any:
        return architectures.values(name, shape, self.options)


def options(model: str) -> Options:
    return Options().but(flow="load", method="full", model=model)


def network(folder: Path) -> Network:
    """The float64 network of a checkpoint; it records outputs, and all its tensors get gradients."""
    config = disk.config(folder)
    tensors = {name: tensor.double().requires_grad_() for name, tensor in disk.tensors(folder).items()}
    return Network(config, tensors, getattr(models.architecture(config), "TRANSPOSED", False), outputs={})


def recorded(network: Network, *names: str) -> Any:
    """The output of the first of these modules that the network has, in its last pass."""
    outputs = network.outputs or {}
    return next(outputs[name] for name in names if name in outputs)


def loaded(ctx: Context, folder: Path, kind: str = "", **arguments: Any) -> Any:
    """The model of a checkpoint in float32, by an auto class of this kind, e.g. SequenceClassification."""
    import transformers

    is_decoder = disk.config(folder)["is_encoder_decoder"]
    usual = "Seq2SeqLM" if is_decoder else "CausalLM"
    class_ = getattr(transformers, f"AutoModelFor{kind or usual}")
    return class_.from_pretrained(folder, **arguments).to(ctx.place.device).eval()


def rows(kind: str = "plain", step: int = 0) -> data.Rows:
    """A batch: plain, packed, padded_left, padded_right or prompt_masked."""
    return data.rows(step, Options().but(data=kind))


def batch(network: Network, rows: data.Rows) -> Batch:
    """The same rows for the reference; a decoder learns the labels, each from those before it."""
    decoder = architectures.shifted(rows.labels.clamp_min(0)) if network.config["is_encoder_decoder"] else None
    places = {"positions": rows.positions, "documents": rows.documents}
    return Batch(ids=rows.ids, real=rows.real, decoder_ids=decoder, **places)


def loss(network: Network, logits: Any, labels: Any) -> Any:
    """The mean over learned tokens; a decoder's logits are those of its labels, other models predict the next token."""
    return twin.cross_entropy(logits, labels if network.config["is_encoder_decoder"] else labels[:, 1:])


def trained(model: Any, rows: data.Rows, **arguments: Any) -> Any:
    """The output of a forward pass in training, after its backward pass."""
    device = next(model.parameters()).device
    found = model.train()(**rows.to(device).arguments, **arguments)
    found.loss.backward()
    return found


def compared(name: str, model: Any, network: Network, rows: data.Rows, **arguments: Any) -> Iterator[Check]:
    """Compare the logits of real tokens, the loss and the gradient of every parameter with the reference."""
    expected = models.logits(network, batch(network, rows))
    wanted = loss(network, expected, rows.labels)
    wanted.backward()
    found = trained(model, rows, **arguments)
    real = slice(None) if rows.real is None or network.config["is_encoder_decoder"] else rows.real
    yield at_most(
        f"logits off, {name}",
        tolerance.relative(found.logits.detach().cpu()[real], expected.detach()[real]),
        tolerance.bound("logits", Options()),
    )
    yield at_most(f"loss off, {name}", abs(float(found.loss.detach()) / float(wanted) - 1), bound("loss"))
    yield gradients(name, model, network)


def gradients(name: str, model: Any, network: Network) -> Check:
    """Compare the gradient of every parameter; one that is not used has a gradient of zero or none."""
    import torch

    found = {
        each: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.cpu()
        for each, parameter in model.named_parameters()
    }
    found = experts.published(found)
    wanted = {
        each: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        for each, tensor in network.tensors.items()
    }
    whole = sum(float(tensor.square().sum()) for tensor in wanted.values()) ** 0.5
    return at_most(
        f"gradients off, {name}",
        tolerance.worst(off(found.get(each), tensor, whole) for each, tensor in wanted.items()),
        bound("gradient"),
    )


def off(found: Any, wanted: Any, whole: float) -> float:
    """The error of one gradient; that of one that is zero but for rounding counts relative to all gradients."""
    if found is None or found.shape != wanted.shape:
        return float("inf")
    if float(wanted.norm()) <= ZERO * whole:
        return float(found.norm()) / whole
    return tolerance.scattered(wanted) * tolerance.relative(found, wanted)


def bound(kind: str) -> float:
    return tolerance.bound(kind, Options())
