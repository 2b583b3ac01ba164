"""The flows: what a case does from loading to its checks, phase by phase, on every rank."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cases import bands, build, observe, stack, tiny
from cases.engagement import Witness
from cases.needs import LackingError
from cases.twin import Trajectory, dequantised
from cases.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Protocol

    from cases.options import Options

    class Reporter(Protocol):
        """How a rank tells its supervisor what happens."""

        def phase(self, phase: Phase) -> None: ...
        def checks(self, checks: list[Check]) -> None: ...
        def metric(self, name: str, value: float) -> None: ...
        def beat(self) -> None: ...
        def observing(self) -> AbstractContextManager[None]: ...

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
    with say.observing():
        say.checks([*seen.checks(), *quantised, *bands.inference(logits.float().cpu(), twin().logits, options)])


def train(options: Options, place: build.Place, cache: Path, twin: Twin, say: Reporter) -> None:
    """Train a few steps on this rank's shard, and compare the trajectory with the twin's on the whole batch."""
    say.phase(Phase.LOAD)
    base = build.load(options, place, cache)
    quantised = quantisation_checks(base, options)
    say.phase(Phase.ADAPT)
    model = build.adapt(base, options)
    with say.observing():
        seen = Witness(options, place)
        seen.before_wrap(model)
        states = observe.state_digests(model)
        before = {name: observe.raw(p) for name, p in tiny.named(model)}
    say.phase(Phase.WRAP)
    promised = options.strategy == "ddp" or (options.strategy == "fsdp1" and options.sync_module_states)
    if promised and place.rank > 0:
        spoil(model)
    seen.wrapped = wrapped = build.wrap(model, options, place)
    if promised:
        with say.observing():
            seen.synced = same(observe.weights(wrapped, options), before)
    seen.watch(build.optimiser(wrapped, options))
    found = steps(seen, say)
    with say.observing():
        after = observe.weights(wrapped, options)
        seen.after_training(after)
        found.after = {name: after[name].float() for name in sorted(seen.trainable) if name in after}
        checks = [*seen.checks(), *quantised, *moved(before, after, seen.trainable), *unchanged(states, wrapped)]
        say.checks([*checks, *replicas(after, place, options), *bands.differential(found, twin(), options)])


def steps(seen: Witness, say: Reporter) -> Trajectory:
    """The training loop; the loss that is kept is the mean over ranks, which is the global batch's.

    Raises:
        LackingError: the model returned no loss.
    """
    options, place, found = seen.options, seen.place, Trajectory()
    for step in range(tiny.STEPS):
        ids = tiny.shard(step, place.rank, place.world_size).to(place.device)
        seen.wrapped.train()
        say.phase(Phase.FORWARD)
        with autocast(options, place):
            loss = seen.wrapped(input_ids=ids, labels=ids).loss
        if loss is None:
            raise LackingError("the model was given labels and returned no loss")
        with say.observing():
            seen.after_forward(loss)
        say.phase(Phase.BACKWARD)
        loss.backward()
        with say.observing():
            found.losses.append(mean_over_ranks(loss, place))
            found.gradients.append(observe.gradients(seen.wrapped, options))
        say.phase(Phase.OPTIMIZER)
        seen.optimiser.step()
        seen.optimiser.zero_grad()
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


def moved(before: dict[str, Any], after: dict[str, Any], trainable: set[str]) -> list[Check]:
    """Exactly the trainable parameters changed, the frozen ones are bit-identical, packed ones too.

    Bits are compared with the start values, which are the same on every rank: equal to them is equal across ranks.
    """
    changed = {name for name in before if name in after and observe.digest(before[name]) != observe.digest(after[name])}
    return [
        equal("parameters that vanished", len(before.keys() - after.keys()), 0),
        equal("frozen parameters that changed", len(changed - trainable), 0),
        equal("trainable parameters that did not change", len(trainable - changed), 0),
    ]


def unchanged(states: dict[str, str], wrapped: Any) -> list[Check]:
    """With packed weights and these, dequantised weights are bit-identical to what they were before the wrap."""
    if not states:
        return []
    now = observe.state_digests(wrapped)
    return [equal("quantisation states that changed", sum(now.get(name) != state for name, state in states.items()), 0)]


def replicas(after: dict[str, Any], place: build.Place, options: Options) -> list[Check]:
    """Under DDP every rank holds all weights, and they must be the same to the bit."""
    if options.strategy != "ddp":
        return []
    import torch.distributed as dist

    mine = [observe.digest(after[name]) for name in sorted(after)]
    everyone: list[Any] = [None] * place.world_size
    dist.all_gather_object(everyone, mine)
    return [equal("ranks with rank 0's weights", sum(each == everyone[0] for each in everyone), place.world_size)]


def quantisation_checks(model: Any, options: Options) -> list[Check]:
    """The dequantised weights against the same quantisation written out, relative to the largest weight."""
    if options.quant == "none":
        return []
    found = observe.dequantised_layers(model)
    off = max(largest_error(w, dequantised(tiny.values(n, tuple(w.shape)), options.quant)) for n, w in found.items())
    return [at_most("dequantised weights", off, 2 * bands.UNIT_ROUNDOFF[options.load_dtype])]


def largest_error(found: Any, expected: Any) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


FLOWS: Mapping[str, Callable[[Options, build.Place, Path, Twin, Reporter], None]] = {"load": load, "train": train}
