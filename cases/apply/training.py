"""Trains a case as a user would, records it, and checks the result."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.apply import build, compat, compiling, optimiser_step, wrapping
from cases.checks import observers
from cases.checks.engagement import evidence
from cases.checks.engagement.recorder import EngagementRecorder
from cases.model import adapter_start, adapters, architectures, data, tiny
from cases.reference import series, tolerance
from cases.reference.twin import Trajectory, dequantised
from cases.space.verdict import Check, LackingError, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from cases.apply.context import Context
    from cases.space.options import Options
    from cases.space.place import Place


@dataclass
class Trainee:
    """A model in training, the records from before it was wrapped, and the results of training."""

    ctx: Context
    model: Any  # adapted, not wrapped
    wrapped: Any
    optimiser: Any
    scheduler: Any
    recorder: EngagementRecorder
    before: dict[str, Any]  # every parameter, by canonical name
    states: dict[str, str]  # digests of quantisation states
    loading: list[Check]
    found: Trajectory = field(default_factory=Trajectory)
    front: Any = None  # the driver of the front end; None for the plain loop
    scaler: Any = None

    @property
    def options(self) -> Options:
        return self.ctx.options


def prepare(ctx: Context) -> Trainee:
    """Load, adapt and wrap the model, make its optimiser and its schedule."""
    options, place, reporter = ctx.options, ctx.place, ctx.reporter
    reporter.phase(Phase.LOAD)
    base = build.load(options, place, ctx.cache)
    loading, states = quantisation_checks(base, options), observers.state_digests(base)
    reporter.phase(Phase.ADAPT)
    model = build.adapt(base, options)
    with reporter.observing():
        loading += unchanged(states, model, "when adapted")
        loading += adapter_start.start_checks(model, options, tolerance.UNIT_ROUNDOFF[options.torch_dtype])
    return wrap(ctx, model, loading)


def loaded(ctx: Context, model: Any) -> Trainee:
    """A trainee for a loaded model in one process, without a wrapper."""
    alone = wrapping.alone(model, ctx.options, ctx.place)
    recorder = EngagementRecorder(ctx.options, ctx.place)
    recorder.before_wrap(alone)
    recorder.wrapped = alone
    before = {name: observers.raw(p) for name, p in tiny.named(alone)}
    job = Trainee(ctx, alone, alone, None, None, recorder, before, observers.state_digests(alone), [])
    ctx.record_modules(alone, lambda: alone)
    if recorder.trainable:
        job.optimiser = build.optimiser(alone, ctx.options)
        job.scheduler = build.scheduler(job.optimiser)
        recorder.watch(job.optimiser)
    return job


def wrap(ctx: Context, model: Any, loading: list[Check]) -> Trainee:
    """Wrap the adapted model and create its optimiser and schedule."""
    options, place, reporter = ctx.options, ctx.place, ctx.reporter
    job = recorded(ctx, model, loading)
    recorder, before = job.recorder, job.before
    reporter.phase(Phase.WRAP)
    promised = options.strategy == "ddp" or options.cpu_ram_efficient_loading
    promised = promised or (options.strategy == "fsdp1" and options.sync_module_states)
    if promised and place.rank > 0:
        corrupt(model)
    recorder.wrapped = wrapped = build.wrap(model, options, place)
    if promised:
        with reporter.observing():
            recorder.synced = equal_bits(observers.weights(wrapped, options), before)
    job.wrapped, job.optimiser = wrapped, build.optimiser(wrapped, options)
    recorder.watch(job.optimiser)
    job.scheduler, job.scaler = build.scheduler(job.optimiser), optimiser_step.scaler(options, place)
    return job


def recorded(ctx: Context, model: Any, loading: list[Check]) -> Trainee:
    """A trainee for an adapted model, with records of what wrapping would hide."""
    with ctx.reporter.observing():
        recorder = EngagementRecorder(ctx.options, ctx.place)
        recorder.before_wrap(model)
        states = observers.state_digests(model)
        before = start_values(model, ctx.options, ctx.place)
    job = Trainee(ctx, model, model, None, None, recorder, before, states, loading)
    ctx.record_modules(model, lambda: job.wrapped)
    return job


def start_values(model: Any, options: Options, place: Place) -> dict[str, Any]:
    """Every parameter before wrapping; rank 0's, if only rank 0 has weights, which is collective."""
    if not options.cpu_ram_efficient_loading:
        return {name: observers.raw(p) for name, p in tiny.named(model)}
    import torch.distributed as dist

    known = [{name: observers.raw(p) for name, p in tiny.named(model)} if place.rank == 0 else {}]
    dist.broadcast_object_list(known, src=0)
    return known[0]


def steps(job: Trainee, numbers: Iterable[int] = range(tiny.STEPS)) -> None:
    """Run the training loop. Keeps the mean loss over ranks, which is the loss of the global batch."""
    options, place, reporter = job.options, job.ctx.place, job.ctx.reporter
    for step in numbers:
        rows = data.shard(step, place.rank, options).to(place.device)
        job.wrapped.train()
        losses = [micro_step(job, part, last=last) for part, last in optimiser_step.micro_batches(rows, options)]
        optimiser_step.unscale(job.scaler, job.optimiser, job.wrapped, job.recorder.trace)
        optimiser_step.clip(job.wrapped, options, job.recorder.trace)
        with reporter.observing():
            job.found.losses.append(mean_over_ranks(sum(losses) / len(losses), place))
            job.found.gradients.append(observers.gradients(job.wrapped, options))
            job.recorder.after_backward(job.found.gradients[-1])
        reporter.phase(Phase.OPTIMIZER)
        optimiser_step.step(job.scaler, job.optimiser, options, job.recorder.trace)
        job.scheduler.step()
        adapters.after_step(job.model, options, step)
        job.optimiser.zero_grad()
        if options.loop == "eval" and step < tiny.STEPS - 1:
            evaluate(job)
        if options.loop == "generate" and step < tiny.STEPS - 1:
            reporter.phase(Phase.INFER)
            with build.gathered(job.wrapped, options):
                job.found.between.append((build.generate(job.wrapped, job.ctx), None))


def micro_step(job: Trainee, rows: data.Rows, *, last: bool) -> Any:
    """Run forward and backward of one micro-batch, and return the detached loss.

    Raises:
        LackingError: the model returned no loss.
    """
    options, place, reporter = job.options, job.ctx.place, job.ctx.reporter
    with optimiser_step.synchronise(job.wrapped, options, last=last):
        reporter.phase(Phase.FORWARD)
        with autocast(options, place):
            loss = job.wrapped(**rows.arguments).loss
        if loss is None:
            raise LackingError("the model received labels and returned no loss")
        with reporter.observing():
            job.recorder.after_forward(loss)
            job.found.loss_in = compat.dtype_name(loss.dtype)
        reporter.phase(Phase.BACKWARD)
        mean = loss / options.gradient_accumulation_steps
        (mean if job.scaler is None else job.scaler.scale(mean)).backward()
    with reporter.observing():
        job.recorder.after_micro_batch(last=last)
    return loss.detach()


def evaluate(job: Trainee) -> None:
    """Run one batch in evaluation mode without gradients, as a trainer does between steps."""
    import torch

    place = job.ctx.place
    job.ctx.reporter.phase(Phase.INFER)
    job.wrapped.eval()
    with torch.no_grad(), autocast(job.options, place):
        job.wrapped(**architectures.inputs(tiny.batch(99).to(place.device), job.options))


def logits(job: Trainee) -> Any:
    """The wrapped model's logits of batch 0: float32, shape (batch, length, vocabulary). Collective."""
    import torch

    place = job.ctx.place
    job.ctx.reporter.phase(Phase.INFER)
    job.wrapped.eval()
    with torch.no_grad(), autocast(job.options, place):
        ids = tiny.batch(0, architectures.vocabulary(job.options)).to(place.device)
        return job.wrapped(**architectures.inputs(ids, job.options)).logits.float().cpu()


def checks(job: Trainee) -> list[Check]:
    """The checks of a trained model: engagement, changed and frozen weights, the twin's trajectory. Collective."""
    options, place = job.options, job.ctx.place
    after = observers.weights(job.wrapped, options)
    job.recorder.after_training(after)
    if options.torch_compile:
        job.ctx.reporter.metric("graph_breaks", compiling.breaks())
    job.found.after = {name: after[name].float() for name in sorted(job.recorder.trainable) if name in after}
    if place.rank == 0:
        job.ctx.reporter.series(series.series(job.found, job.ctx.twin()))
    return [
        *evidence.checks(job.recorder),
        *job.loading,
        *moved(job.before, after, job.recorder.trainable),
        *unchanged(job.states, job.wrapped),
        *replicas(after, place, options),
        *tolerance.differential(job.found, job.ctx.twin(), options),
        *tolerance.between(job.found, job.ctx.twin(), options),
    ]


def autocast(options: Options, place: Place) -> AbstractContextManager[Any]:
    import torch

    if options.autocast == "off":
        return contextlib.nullcontext()
    found: AbstractContextManager[Any] = torch.autocast(place.kind, dtype=compat.dtype(options.autocast))
    return found


def mean_over_ranks(loss: Any, place: Place) -> float:
    if place.world_size == 1:
        return float(loss.item())
    import torch.distributed as dist

    total = loss.detach().float().clone()
    dist.all_reduce(total)
    return float(total.item()) / place.world_size


def corrupt(model: Any) -> None:
    """Set this rank's weights to zero, so that weights broadcast from rank 0 are recognisable."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.zero_()


def equal_bits(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return {n: observers.digest(t) for n, t in found.items()} == {n: observers.digest(t) for n, t in expected.items()}


def moved(before: dict[str, Any], after: dict[str, Any], trainable: set[str]) -> list[Check]:
    """Check that exactly the trainable parameters changed; frozen and packed ones must be bit-identical.

    All ranks compare with the same start values, so equal weights are also equal across ranks.
    """
    changed = {
        name for name in before if name in after and observers.digest(before[name]) != observers.digest(after[name])
    }
    return [
        equal("parameters that vanished", len(before.keys() - after.keys()), 0),
        equal("frozen parameters that changed", len(changed - trainable), 0),
        equal("trainable parameters that did not change", len(trainable - changed), 0),
    ]


def unchanged(states: dict[str, str], model: Any, when: str = "") -> list[Check]:
    """Check the quantisation states: with them and the packed weights, dequantised weights are unchanged."""
    if not states:
        return []
    now = observers.state_digests(model)
    name = f"quantisation states that changed {when}" if when else "quantisation states that changed"
    return [equal(name, sum(now.get(layer) != state for layer, state in states.items()), 0)]


def replicas(after: dict[str, Any], place: Place, options: Options) -> list[Check]:
    """Check that all ranks of DDP hold bit-identical weights."""
    if options.strategy != "ddp":
        return []
    import torch.distributed as dist

    mine = [observers.digest(after[name]) for name in sorted(after)]
    everyone: list[Any] = [None] * place.world_size
    dist.all_gather_object(everyone, mine)
    return [equal("ranks with rank 0's weights", sum(each == everyone[0] for each in everyone), place.world_size)]


def quantisation_checks(model: Any, options: Options) -> list[Check]:
    """Compare dequantised weights with the reference quantisation, relative to the largest weight."""
    if options.quant == "none":
        return []
    found = observers.dequantised_layers(model)
    off = max(
        largest_error(w, dequantised(n, architectures.linear_values(n, tuple(w.shape), options), options))
        for n, w in found.items()
    )
    return [at_most("dequantised weights", off, 2 * tolerance.UNIT_ROUNDOFF[options.torch_dtype])]


def largest_error(found: Any, expected: Any) -> float:
    return float((found - expected).abs().max() / expected.abs().max())
