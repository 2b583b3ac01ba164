"""The flows: what a case does from loading to its checks, phase by phase, on every rank."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cases import bands, build, observe, stack, tiny
from cases.engagement import Witness
from cases.twin import Trajectory, dequantised
from cases.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Protocol

    from cases.options import Options

    class Reporter(Protocol):
        """How a rank tells its supervisor what happens."""

        def phase(self, phase: Phase) -> None: ...
        def checks(self, checks: list[Check]) -> None: ...
        def metric(self, name: str, value: float) -> None: ...
        def beat(self) -> None: ...

    Twin = Callable[[], Trajectory]


def run(options: Options, place: build.Place, cache: Path, twin: Twin, say: Reporter) -> None:
    FLOWS[options.flow](options, place, cache, twin, say)


def load(options: Options, place: build.Place, cache: Path, twin: Twin, say: Reporter) -> None:
    """Load the checkpoint and compare the logits of one batch with the twin's."""
    import torch

    say.phase(Phase.LOAD)
    model = build.load(options, place, cache)
    seen = Witness(options, place)
    seen.before_wrap(model)
    quantised = quantisation_checks(model, options)
    say.phase(Phase.FORWARD)
    with torch.no_grad():
        logits = model.eval()(tiny.batch(0).to(place.device)).logits
    off = bands.relative(logits.float().cpu(), twin().logits)
    say.checks([*seen.checks(), *quantised, at_most("logits", off, bands.bound("logits", options))])


def train(options: Options, place: build.Place, cache: Path, twin: Twin, say: Reporter) -> None:
    """Train a few steps on this rank's shard, and compare the trajectory with the twin's on the whole batch."""
    say.phase(Phase.LOAD)
    base = build.load(options, place, cache)
    quantised = quantisation_checks(base, options)
    say.phase(Phase.ADAPT)
    model = build.adapt(base, options)
    seen = Witness(options, place)
    seen.before_wrap(model)
    dequantise = observe.Dequantiser(model)
    before = {name: observe.raw(p) for name, p in tiny.named(model)}
    say.phase(Phase.WRAP)
    if options.strategy == "fsdp1" and options.sync_module_states and place.rank > 0:
        spoil(model)
    seen.wrapped = wrapped = build.wrap(model, options, place)
    if options.strategy == "fsdp1" and options.sync_module_states:
        seen.synced = same(observe.weights(wrapped, options), before)
    seen.optimiser = build.optimiser(wrapped, options)
    found = steps(seen, say)
    after = observe.weights(wrapped, options)
    found.after = {name: after[name].float() for name in sorted(seen.trainable)}
    say.checks(
        [
            *seen.checks(),
            *quantised,
            *moved(before, after, seen.trainable, dequantise),
            *bands.differential(found, twin(), options),
        ]
    )


def steps(seen: Witness, say: Reporter) -> Trajectory:
    """The training loop; the loss that is kept is the mean over ranks, which is the global batch's."""
    options, place, found = seen.options, seen.place, Trajectory()
    for step in range(tiny.STEPS):
        ids = tiny.shard(step, place.rank, place.world_size).to(place.device)
        seen.wrapped.train()
        say.phase(Phase.FORWARD)
        with autocast(options, place):
            loss = seen.wrapped(input_ids=ids, labels=ids).loss
        if options.strategy == "fsdp2":
            seen.after_forward()
        seen.losses.append(loss.item())
        say.phase(Phase.BACKWARD)
        loss.backward()
        found.losses.append(mean_over_ranks(loss, place))
        found.gradients.append(observe.gradients(seen.wrapped, options))
        say.phase(Phase.OPTIMIZER)
        seen.optimiser.step()
        seen.optimiser.zero_grad()
        seen.updates += 1
        if options.loop == "eval" and step < tiny.STEPS - 1:
            evaluate(seen, say)
    return found


def evaluate(seen: Witness, say: Reporter) -> None:
    """What a trainer does between steps: eval mode, no gradients, one batch, back to training."""
    import torch

    say.phase(Phase.INFER)
    seen.wrapped.eval()
    with torch.no_grad(), autocast(seen.options, seen.place):
        seen.wrapped(input_ids=tiny.batch(99).to(seen.place.device))


def autocast(options: Options, place: build.Place) -> Any:
    import torch

    if options.autocast == "off":
        return contextlib.nullcontext()
    return torch.autocast(place.kind, dtype=stack.dtype(options.autocast))


def mean_over_ranks(loss: Any, place: build.Place) -> float:
    if place.world_size == 1:
        return float(loss.item())
    import torch.distributed as dist

    total = loss.detach().float().clone()
    dist.all_reduce(total)
    return float(total.item()) / place.world_size


def spoil(model: Any) -> None:
    """Make this rank's weights wrong, so that weights taken from rank 0 can be told from its own."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.zero_()


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return {n: observe.digest(t) for n, t in found.items()} == {n: observe.digest(t) for n, t in expected.items()}


def moved(before: dict[str, Any], after: dict[str, Any], trainable: set[str], dequantise: Any) -> list[Check]:
    """Exactly the trainable parameters changed; frozen ones are bit-identical, quantised ones also dequantised.

    Bits are compared with the start values, which are the same on every rank: equal to them is equal across ranks.
    """
    changed = {name for name in before if observe.digest(before[name]) != observe.digest(after[name])}
    checks = [
        equal("frozen parameters that changed", len(changed - trainable), 0),
        equal("trainable parameters that did not change", len(trainable - changed), 0),
    ]
    if dequantise.states:
        kept = same(dequantise.values(after), dequantise.values(before))
        checks.append(equal("dequantised weights bit-identical", kept, bound=True))
    return checks


def quantisation_checks(model: Any, options: Options) -> list[Check]:
    """The dequantised weights against the same quantisation written out, relative to the largest weight."""
    if options.quant == "none":
        return []
    stored = {name: observe.raw(module.weight) for name, module in observe.quantised_layers(model).items()}
    found = observe.Dequantiser(model).values(stored)
    off = max(largest_error(w, dequantised(tiny.values(n, tuple(w.shape)), options.quant)) for n, w in found.items())
    return [at_most("dequantised weights", off, 2 * bands.UNIT_ROUNDOFF[options.load_dtype])]


def largest_error(found: Any, expected: Any) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


FLOWS: Mapping[str, Callable[[Options, build.Place, Path, Twin, Reporter], None]] = {"load": load, "train": train}
