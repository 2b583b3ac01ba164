"""The outputs, gradients and weights of every module of the reference, step by step, for locating a deviation.

They are computed and stored apart from the trajectory, and only for a cell that is located.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.model import adapters, architectures, experts, tiny
from cases.reference import models, rotary, twin
from cases.reference.network import Network
from cases.space.options import DECOMPOSED, TRAINING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.space.options import Options

LOW_RANK = ("lora", "rslora", *DECOMPOSED)  # methods that add the output of two linear layers to that of the base layer
WHOLE_MODEL, ROTARY = "", "model.rotary_emb"
SCALED, SCORES = "scaled", "scores"  # of an embedding times sqrt(hidden); of a router, the weights of chosen experts
# The layer whose output is also that of the module around it, which may compute more than the reference knows of.
LAST = {
    "model.norm": "model",
    "transformer.ln_f": "transformer",
    "encoder.final_layer_norm": "encoder",
    "decoder.final_layer_norm": "decoder",
}
ROUTER = f"{experts.PUBLISHED}.gate"
INPUT_SCALED = "ia3"  # may scale the input of the base layer, so the base layer's output is not the frozen weight's


@dataclass(frozen=True)
class RecordedStep:
    """One step of the whole global batch; tensors are float32, by the names of published checkpoints.

    ``inputs`` and ``outputs`` have one tensor (batch, ...) for each call of a module; ``gradients`` are those of the
    outputs, None where nothing before needs one. ``weight_gradients`` and ``weights`` are of trained tensors, the
    weights after the step.
    """

    inputs: dict[str, list[Any]]
    outputs: dict[str, list[Any]]
    gradients: dict[str, list[Any]]
    weight_gradients: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)


@dataclass
class AdaptedCall:
    """One call of a layer with a low-rank adapter: its output, and the adapter's matrices at that time."""

    name: str
    output: Any
    a: Any
    b: Any


@dataclass
class RecordedNetwork(Network):
    """A network that records its modules; ``trained`` are the tensors of its adapter."""

    options: Any = None
    trained: dict[str, Any] = field(default_factory=dict)
    seen_inputs: dict[str, list[Any]] = field(default_factory=dict)
    seen_outputs: dict[str, list[Any]] = field(default_factory=dict)
    adapted: list[AdaptedCall] = field(default_factory=list)

    def linear(self, name: str, x: Any) -> Any:
        found = super().linear(name, x)
        if name in self.layers and self.options.method != INPUT_SCALED:
            self.record_parts(name, x.detach(), found)
        return found

    def record_parts(self, name: str, x: Any, whole: Any) -> None:
        """Record the base layer of an adapted one, and the two layers of a low-rank adapter.

        A decomposed weight is no longer the published one: the base layer's output is what the adapter leaves.
        """
        if self.options.method not in LOW_RANK:
            self.note(self.seen_outputs, f"{name}.base_layer", self.plain_linear(name, x).detach())
            return
        a, b = (self.trained[f"{name}.lora_{part}.weight"].detach().clone() for part in "AB")
        inner = x @ a.T
        outer = inner @ b.T
        self.note(self.seen_inputs, f"{name}.lora_A", x)
        self.note(self.seen_outputs, f"{name}.lora_A", inner)
        self.note(self.seen_outputs, f"{name}.lora_B", outer)
        rest = whole.detach() - adapters.scaling(self.options) * outer
        self.note(self.seen_outputs, f"{name}.base_layer", rest)
        self.adapted.append(AdaptedCall(name, whole, a, b))

    def embedding(self, name: str, ids: Any) -> Any:
        self.input(name, ids)
        found = super().embedding(name, ids)
        self.note(self.seen_outputs, f"{name}.{SCALED}", found.detach() * self.config.get("hidden_size", 1) ** 0.5)
        return found

    def angles(self, found: Any) -> Any:
        """Record the rotations of positions, complex (batch, length, width / 2), as cosines and then sines."""
        import torch

        self.note(self.seen_outputs, ROTARY, torch.cat([found.real, found.real, found.imag, found.imag], dim=-1))
        return found

    def input(self, name: str, value: Any) -> None:
        self.note(self.seen_inputs, name, value.detach())

    def output(self, name: str, value: Any) -> Any:
        if value.requires_grad:
            value.retain_grad()
        for each in (name, *around(name)):
            self.note(self.seen_outputs, each, value)
        if name.endswith(ROUTER):
            chosen = value.detach().topk(self.config["num_experts_per_tok"], dim=-1).values
            self.note(self.seen_outputs, f"{name}.{SCORES}", chosen.softmax(-1))
        return value

    @staticmethod
    def note(record: dict[str, list[Any]], name: str, value: Any) -> None:
        record.setdefault(name, []).append(value)

    def take_step(self, **of_weights: dict[str, Any]) -> RecordedStep:
        """The record since the last call, after which a new one begins."""
        gradients = {name: [gradient(each) for each in calls] for name, calls in self.seen_outputs.items()}
        for call in self.adapted:
            parts = adapter_gradients(call, adapters.scaling(self.options))
            for part, found in parts.items():
                gradients[f"{call.name}.{part}"] = [found]
        taken = RecordedStep(plain(self.seen_inputs), plain(self.seen_outputs), gradients, **of_weights)
        self.seen_inputs, self.seen_outputs, self.adapted = {}, {}, []
        return taken


def around(name: str) -> tuple[str, ...]:
    """The other modules whose output is that of a part of the reference."""
    if name.endswith(experts.PUBLISHED):
        return (f"{name}.experts",)  # all experts, where a version stacks them
    return (LAST[name],) if name in LAST else ()


def gradient(output: Any) -> Any:
    return output.grad.float() if output.requires_grad and output.grad is not None else None


def adapter_gradients(call: AdaptedCall, scaling: float) -> dict[str, Any]:
    """The gradients of the outputs of the base layer, of A and of B: y = base(x) + s B(A(x))."""
    whole = call.output.grad
    if whole is None:
        return {}
    outer = scaling * whole
    return {"base_layer": whole.float(), "lora_B": outer.float(), "lora_A": (outer @ call.b).float()}


def plain(record: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [each.detach().float() for each in calls] for name, calls in record.items()}


def run(options: Options, folder: Path) -> list[RecordedStep]:
    """Every step of training, then the evaluation of batch 0; without training, the evaluation only.

    ``folder`` has the published checkpoint.
    """
    import torch

    model = twin.network(options, folder)
    trained = twin.trained_tensors(model, options)
    recorded = RecordedNetwork(**vars(model), options=options, trained=trained)
    found = []
    with functions_recorded(recorded):
        if options.flow in TRAINING:
            for _, gradients in twin.steps(recorded, trained, options):
                found.append(recorded.take_step(weight_gradients=gradients, weights=twin.stored(trained)))
        with torch.no_grad():
            twin.logits(recorded, trained, tiny.batch(0, architectures.vocabulary(options)), options)
        return [*found, recorded.take_step()]


@contextlib.contextmanager
def functions_recorded(network: RecordedNetwork) -> Iterator[None]:
    """Record what functions of the reference return and modules of the stack compute: rotations, and logits.

    A network does not see them, and what it would take to show them would change the code of every cell.
    """
    angles, logits = rotary.angles, models.logits
    rotary.angles = lambda *arguments: network.angles(angles(*arguments))
    models.logits = lambda *arguments: network.output(WHOLE_MODEL, logits(*arguments))
    try:
        yield
    finally:
        rotary.angles, models.logits = angles, logits


def path(cache: Path, options: Options) -> Path:
    """The file of a recording, next to that of the trajectory."""
    return cache / f"{twin.key(options)}.modules.pt"


def save(steps: list[RecordedStep], file: Path) -> None:
    import torch

    unfinished = file.with_suffix(".unfinished")
    torch.save([vars(step) for step in steps], unfinished)
    unfinished.rename(file)


def read(file: Path) -> list[RecordedStep]:
    import torch

    return [RecordedStep(**step) for step in torch.load(file, weights_only=True)]
