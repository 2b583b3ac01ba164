"""Records the outputs and gradients of every module of a rank, and compares them with the reference.

The hooks belong to the modules themselves, so they survive every wrapper. Which rows of which step a forward pass has
follows from its token ids. A forward pass that gradient checkpointing repeats in the backward pass counts for the
gradients of its outputs only.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.checks import module_comparison, observers
from cases.model import data, experts, tiny
from cases.reference import recording
from cases.runtime.deviations import Deviation, RankDeviations
from cases.space.options import GLOBAL_BATCH, SHARDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from cases.apply.context import Context
    from cases.reference.recording import RecordedStep

EVALUATION = tiny.STEPS + 1
AROUND = "base_model"  # PEFT's model has what it puts around another as this
MAIN_FIELDS = ("logits", "last_hidden_state")  # of an output with names
WHOLE = "(model)"  # instead of an empty name, where one is needed
BASE, ADAPTED = "base_layer", ("base_layer", "lora_A", "lora_B")


@dataclass(frozen=True)
class BatchPart:
    """The rows of a step that one forward pass has: ``rows`` are their numbers in the global batch."""

    step: int
    rows: list[int]
    reference: RecordedStep
    real: Any = None
    trains: bool = True


@dataclass
class ModuleRecorder:
    """Compares one rank's modules with the reference while it trains. ``wrapped`` is the model, wrapped by then."""

    ctx: Context
    read: Callable[[], list[RecordedStep]]
    wrapped: Callable[[], Any] = lambda: None
    part: BatchPart | None = None
    is_forward: bool = False
    is_training: bool = False  # since a forward pass of training, until the optimiser's step
    calls: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)  # calls that the backward pass repeats
    passed: int = 0  # steps that were optimised
    backward_position: int = 0
    loss_scale: float | None = None
    measured: list[Deviation] = field(default_factory=list)
    uncompared: dict[str, None] = field(default_factory=dict)
    reference: list[RecordedStep] = field(default_factory=list)
    entered: list[tuple[str, Any]] = field(default_factory=list)  # modules that run, each with its first tensor

    def attach(self, model: Any, wrapped: Callable[[], Any]) -> None:
        """Record a model from now on; ``wrapped`` returns it as it is wrapped at the time."""
        from torch.optim import optimizer

        if not self.reference:
            self.reference = self.read()
            optimizer.register_optimizer_step_pre_hook(lambda *_: self.before_step())
            optimizer.register_optimizer_step_post_hook(lambda *_: self.after_step())
        self.wrapped = wrapped
        for name, module in named_modules(model):
            # Before hooks of the stack, whose changes belong to this module and not to the one before.
            module.register_forward_pre_hook(self.before(name), with_kwargs=True, prepend=True)
            module.register_forward_hook(self.after(name))
        model.register_forward_pre_hook(self.begin, with_kwargs=True, prepend=True)
        model.register_forward_hook(self.end)

    def write(self, path: Path) -> None:
        found = RankDeviations(self.ctx.place.rank, tuple(self.measured), tuple(filter(None, self.uncompared)))
        path.write_text(found.to_json(), encoding="utf-8")

    def begin(self, model: Any, _arguments: Any, named: dict[str, Any]) -> None:
        """A forward pass of the whole model begins: find its rows in the global batches."""
        import torch

        self.calls.clear()
        self.again.clear()
        self.backward_position = 0
        self.entered.clear()  # modules that raised in an earlier pass; the model itself follows
        last, self.part, ids = self.part, None, named.get("input_ids")
        if ids is not None:
            trains = model.training and torch.is_grad_enabled()
            self.is_training = self.is_training or trains
            self.part = self.training_part(ids.cpu()) if trains else self.evaluated_part(ids.cpu())
        self.is_forward = self.part is not None
        self.check_skipped_step(last)

    def check_skipped_step(self, last: BatchPart | None) -> None:
        """Compare the weights of a step that the optimiser never made, where that takes no other rank."""
        alone = self.ctx.options.strategy not in SHARDED
        if alone and last is not None and last.trains and self.part is not None and self.part.step != last.step:
            current, self.part = self.part, last
            self.after_step()
            self.part, self.is_training = current, current.trains

    def training_part(self, ids: Any) -> BatchPart | None:
        options = self.ctx.options
        for step in range(tiny.STEPS):
            batch = data.rows(step, options)
            rows = [number for row in ids for number, known in enumerate(batch.ids) if row.equal(known)]
            if len(rows) == len(ids) and self.may_have(rows):
                real = None if batch.real is None else batch.real[rows]
                return BatchPart(step + 1, rows, self.reference[step], real)
        if ids.shape[1:] == batch.ids.shape[1:]:
            self.measured.append(Deviation("batch", "input_ids", self.passed + 1, math.inf, 0.0))
        return None

    def may_have(self, rows: list[int]) -> bool:
        """Return whether rows belong to this rank; a front end distributes them as it likes."""
        options, rank = self.ctx.options, self.ctx.place.rank
        share = GLOBAL_BATCH // options.world_size
        return options.front_end != "loop" or all(number // share == rank for number in rows)

    def evaluated_part(self, ids: Any) -> BatchPart | None:
        batch = tiny.batch(0, self.vocabulary)
        if not ids.equal(batch):
            return None
        return BatchPart(EVALUATION, list(range(len(ids))), self.reference[-1], trains=False)

    @property
    def vocabulary(self) -> int:
        from cases.model import architectures

        return architectures.vocabulary(self.ctx.options)

    def end(self, *_: Any) -> None:
        self.is_forward = False

    def before(self, name: str) -> Callable[..., None]:
        def hook(_module: Any, arguments: Any, named: dict[str, Any]) -> None:
            given = next((each for each in (*arguments, *named.values()) if is_tensor(each)), None)
            self.entered.append((name, given))
            if self.is_forward and given is not None and self.part is not None:
                expected = self.part.reference.inputs.get(name, [])
                if expected and not is_floating(given) and given.shape[1:] != expected[0].shape[1:]:
                    self.measured.append(Deviation("input", name, self.part.step, math.inf, 0.0))  # ids, cut otherwise
                self.compare("input", name, given, expected, self.calls[name])

        return hook

    def receiver(self, name: str, given: Any) -> str:
        """The outermost of the modules around one that only pass its input on, as an MLP does to its first layer."""
        for outer, tensor in reversed(self.entered[:-1]):
            if tensor is not given or not outer or outer.rpartition(".")[2].isdigit():
                break
            name = outer
        return name

    def after(self, name: str) -> Callable[..., None]:
        def hook(module: Any, _arguments: Any, output: Any) -> None:
            found, recorded = main_output(name, module, output)
            while self.entered and self.entered.pop()[0] != name:
                pass  # modules that raised
            if self.part is None or found is None or self.is_merged(name):
                return
            counter = self.calls if self.is_forward else self.again
            number, counter[name] = counter[name], counter[name] + 1
            if self.is_forward:
                self.compare("output", name, found, self.part.reference.outputs.get(recorded, []), number)
            if found.requires_grad and self.part.trains and recorded == name:
                found.register_hook(self.backward(name, number, self.part))

        return hook

    def is_merged(self, name: str) -> bool:
        """Return whether a merge may have put an adapter into this base layer."""
        return self.part is not None and not self.part.trains and name.rpartition(".")[2] in ADAPTED

    def backward(self, name: str, number: int, part: BatchPart) -> Callable[[Any], None]:
        def hook(gradient: Any) -> None:
            expected = part.reference.gradients.get(name, [])
            is_shared = len(gradient) == 1 < len(part.rows)  # one row for all, as of positions
            if len(expected) > number and expected[number] is not None and not is_shared:
                # The loss of a rank is a mean over its own rows; the strategy averages over ranks later.
                wanted = expected[number][part.rows] * self.ctx.options.world_size
                found = gradient.detach().float().cpu() / self.scale(gradient, wanted)
                self.note("gradient", name, part, found, wanted, self.backward_position)
                self.backward_position += 1

        return hook

    def scale(self, gradient: Any, wanted: Any) -> float:
        """The factor of a gradient scaler: the power of two next to the ratio of the first gradients."""
        if self.ctx.options.autocast != "fp16":
            return 1.0
        if self.loss_scale is None:
            ratio = float(gradient.detach().double().norm()) / max(float(wanted.double().norm()), 1e-30)
            self.loss_scale = 2.0 ** round(math.log2(ratio)) if ratio > 0 and math.isfinite(ratio) else 1.0
        return self.loss_scale

    def compare(self, kind: str, name: str, found: Any, expected: list[Any], number: int) -> None:
        assert self.part is not None  # noqa: S101 - only called in a forward pass
        if len(expected) <= number:
            self.uncompared.update({} if expected or kind == "input" else {name: None})
            return
        wanted = expected[number][self.part.rows]
        label = self.receiver(name, found) if kind == "input" else name
        self.note(kind, label, self.part, found.detach().float().cpu(), wanted, self.calls.total())

    def note(self, kind: str, name: str, part: BatchPart, found: Any, wanted: Any, position: int) -> None:
        options = self.ctx.options
        off = module_comparison.distance(found, wanted, part.real)
        if off is None:
            self.uncompared[name] = None
            return
        limit = module_comparison.allowed(kind, options, position, wanted.numel())
        if not part.trains:
            limit += module_comparison.merging(options)
        self.measured.append(Deviation(kind, name, part.step, off, limit))

    def before_step(self) -> None:
        """Compare the gradients of weights. All ranks gather them, also one whose rows are unknown."""
        if self.is_training:
            with self.ctx.reporter.observing():
                found = observers.gradients(self.wrapped(), self.ctx.options)
            if self.part is not None and self.part.trains:
                self.compare_weights("weight gradient", found, self.part.reference.weight_gradients)

    def after_step(self) -> None:
        """Compare the trained weights, which all ranks gather."""
        if self.is_training:
            with self.ctx.reporter.observing():
                found = observers.weights(self.wrapped(), self.ctx.options)
            if self.part is not None and self.part.trains:
                self.compare_weights("weight", found, self.part.reference.weights)
            self.passed += 1
            self.part, self.is_training = None, False

    def compare_weights(self, kind: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
        """Compare trained tensors in order of execution, gradients in the opposite order."""
        assert self.part is not None  # noqa: S101 - only called after a forward pass
        published = experts.published({name: tensor.float() for name, tensor in found.items()})
        for name in self.ordered(expected, backward=kind != "weight"):
            if kind == "weight" and name.endswith(".lora_E"):
                continue  # AdaLoRA drops ranks after the optimiser's step
            limit = module_comparison.allowed(kind, self.ctx.options, 0, expected[name].numel())
            off = module_comparison.distance(published[name].cpu(), expected[name]) if name in published else None
            self.measured.append(Deviation(kind, name, self.part.step, math.inf if off is None else off, limit))

    def ordered(self, names: dict[str, Any], *, backward: bool) -> list[str]:
        assert self.part is not None  # noqa: S101 - only called after a forward pass
        order = {name: number for number, name in enumerate(self.part.reference.outputs)}
        found = sorted(names, key=lambda name: order.get(name.rpartition(".")[0], len(order)))
        return found[::-1] if backward else found


def named_modules(model: Any) -> Iterator[tuple[str, Any]]:
    """The modules of a model by their names in the reference, whether it is adapted, wrapped or neither.

    What PEFT and other wrappers put around a whole model has the name of the model, which is empty.
    """
    every = list(model.named_modules())
    inner = adapted_model(every)
    names = {path: "" if f"{inner}.".startswith(f"{path}.") else module_name(path) for path, _ in every}
    if inner:
        names |= {path: module_name(path[len(inner) + 1 :]) for path in names if path.startswith(f"{inner}.")}
        names[""] = ""
    mixtures = [names[path] for path, module in every if hasattr(module, "gate") and hasattr(module, "experts")]
    for path, module in every:
        yield published_name(names[path], mixtures), module


def adapted_model(every: Sequence[tuple[str, Any]]) -> str:
    """The path of the model that PEFT adapts; empty if there is none. Prompts come before a model as it is."""
    tuned = (f"{path}.model".lstrip(".") for path, module in every if is_tuner(module))
    around = (path for path, _ in every if path.rpartition(".")[2] == AROUND)
    return next(tuned, "") or next(around, "")


def published_name(name: str, mixtures: Sequence[str]) -> str:
    """The name of a module in published checkpoints; some versions call a mixture of experts mlp."""
    mixture = next((each for each in mixtures if f"{name}.".startswith(f"{each}.")), "")
    return f"{mixture.rpartition('.')[0]}{experts.PUBLISHED}{name.removeprefix(mixture)}" if mixture else name


def module_name(path: str) -> str:
    """The name of a module in the reference. A base layer keeps its own name beside the adapted layer's."""
    bare = experts.published_name(f"{tiny.canonical(path)}.weight").removesuffix(".weight")
    return f"{bare}.{BASE}" if path.endswith(f".{BASE}") else bare


def class_names(modules: Iterable[Any]) -> str:
    """The name of the last of these modules, which is no part of a model (yet), from those that construct it."""
    distinct = {id(each): f"{type(each).__name__}()" for each in modules}
    return ".".join(distinct.values())


def is_tuner(model: Any) -> bool:
    """Return whether a module is the one that PEFT puts around a model to adapt its layers."""
    return any(each.__name__ == "BaseTuner" for each in type(model).__mro__)


def main_output(name: str, module: Any, output: Any) -> tuple[Any, str]:
    """The tensor of a module's output to compare, and its name in the record of the reference.

    Since transformers 5, Gemma's embeddings scale themselves, and routers of experts choose the experts; those of 5.3
    return probabilities under the name of logits.
    """
    if hasattr(module, "top_k") and hasattr(module, "weight"):
        return (output[1] if isinstance(output, tuple) else None), f"{name}.{recording.SCORES}"
    if name == recording.ROTARY and isinstance(output, tuple):
        return joined(output), name
    if hasattr(getattr(module, BASE, module), "embed_scale"):
        return first_tensor(output), f"{name}.{recording.SCALED}"
    return first_tensor(output), name


def joined(cosines_and_sines: tuple[Any, ...]) -> Any:
    import torch

    return torch.cat(cosines_and_sines, dim=-1)


def first_tensor(output: Any) -> Any:
    """The tensor of a module's output, which may be the first of a tuple; None if it has none."""
    if isinstance(output, (tuple, list)) and output:
        return first_tensor(output[0])
    if is_floating(output):
        return output
    return next((found for each in MAIN_FIELDS if is_tensor(found := getattr(output, each, None))), None)


def is_floating(value: Any) -> bool:
    return bool(getattr(value, "is_floating_point", bool)()) and hasattr(value, "register_hook")


def is_tensor(value: Any) -> bool:
    return hasattr(value, "register_hook")
