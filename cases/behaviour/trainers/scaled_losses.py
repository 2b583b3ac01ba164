"""Scaled losses, as float16 training has them: clipping, accumulation, skipped steps and the scale itself.

A scale is a power of two, so that scaling and unscaling lose nothing in float32:
https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling. accelerate and the Trainer scale on GPUs only, so that
the cells change accelerate's state, and leave the arithmetic in float32.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.trainers import stock_trainer
from cases.behaviour.trainers.stock_trainer import Reference
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "Scaled losses"
RATE, BOUND, SCALE = 0.5, 0.1, 2.0**12
BAD = 2  # the step whose gradient overflows
STEPS = 5


def descended(
    steps: int = STEPS, batches: int = 1, clip: Callable[[Any], float] | None = None
) -> tuple[Any, list[float]]:
    """A network after gradient descent without scaling that leaves out the bad step, and the norms of its steps."""
    import torch

    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    norms = []
    for step in range(steps):
        optimiser.zero_grad()
        for number in range(step * batches, (step + 1) * batches):
            (loss(model, number) / batches).backward()
        norms.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()))
        if clip:
            clip(model)
        if step != BAD:
            optimiser.step()
    return model, norms


def by_norm(model: Any) -> float:
    import torch

    return float(torch.nn.utils.clip_grad_norm_(model.parameters(), BOUND))


@call(GROUP, phase=Phase.OPTIMIZER, requires=("cpu_scaler",))
def scaler_steps(ctx: Context) -> Iterator[Check]:
    """GradScaler steps as without a scale, with clipping after unscale_; it skips an overflow and halves its scale.

    The scale doubles after growth_interval steps in a row without an overflow.
    """
    import torch

    for clip in (None, by_norm):
        model = network()
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
        scaler = torch.amp.GradScaler(ctx.place.kind, init_scale=SCALE, growth_interval=2, growth_factor=4.0)
        scales = []
        for step in range(STEPS):
            optimiser.zero_grad()
            value = loss(model, step)
            scaler.scale(value * float("inf") if step == BAD else value).backward()
            if clip:
                scaler.unscale_(optimiser)
                clip(model)
            scaler.step(optimiser)
            scaler.update()
            scales.append(scaler.get_scale())
        expected, _ = descended(clip=clip)
        kind = "clipped" if clip else "not clipped"
        yield networks.off(f"weights off, {kind}", networks.weights(model), networks.weights(expected))
        wanted = [SCALE, 4 * SCALE, 2 * SCALE, 2 * SCALE, 8 * SCALE]
        yield equal(f"scales, {kind}", str(scales), str(wanted))
        again = torch.amp.GradScaler(ctx.place.kind)
        again.load_state_dict(scaler.state_dict())
        kept = (again.get_scale(), again.get_growth_interval(), again.get_growth_factor())
        yield equal(f"state loaded, {kind}", str(kept), str((8 * SCALE, 2, 4.0)))


@call(GROUP, phase=Phase.OPTIMIZER, requires=("cpu_scaler",))
def scaler_of_two_optimisers(ctx: Context) -> Iterator[Check]:
    """An overflow in one optimiser's gradients skips its step alone; one update of the scaler halves the scale once."""
    import torch

    model = network()
    parts = [list(model.first.parameters()), [p for n, p in model.named_parameters() if not n.startswith("first")]]
    optimisers = [torch.optim.SGD(part, lr=RATE) for part in parts]
    scaler = torch.amp.GradScaler(ctx.place.kind, init_scale=SCALE)
    scaler.scale(loss(model)).backward()
    model.first.bias.grad[0] = float("nan")
    for optimiser in optimisers:
        scaler.step(optimiser)
    scaler.update()
    start, expected = networks.weights(network()), networks.weights(network())
    for name, gradient in networks.expected_gradients(network(), [loss]).items():
        expected[name] = start[name] if name.startswith("first") else start[name] - RATE * gradient
    yield networks.off("weights off", networks.weights(model), expected)
    yield equal("scale", scaler.get_scale(), SCALE / 2)


def scaling(made: Any) -> Any:
    """Let an Accelerator on a CPU scale losses as it does on GPUs, without autocast."""
    import torch
    from accelerate.utils import AutocastKwargs

    made.state._mixed_precision = "fp16"  # noqa: SLF001 - accelerate refuses it on a CPU
    made.native_amp = True
    made.autocast_handler = AutocastKwargs(enabled=False)
    made.scaler = torch.amp.GradScaler(made.device.type, init_scale=SCALE, growth_interval=1000)
    return made


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=("cpu_scaler",))
def accelerate_scaled_clipping(ctx: Context) -> Iterator[Check]:
    """With fp16, accelerator.clip_grad_norm_ and clip_grad_value_ clip unscaled gradients, also of accumulated batches.

    It returns the unscaled norm; a step whose gradients overflow on one rank is skipped on both, schedule included.
    """
    for batches in (1, 3):
        yield from scaled_loop(ctx, batches, "norm", by_norm)
    yield from scaled_loop(ctx, 1, "value", by_value)
    yield from scaled_loop(ctx, 2, "nothing", None)


def by_value(model: Any) -> float:
    import torch

    torch.nn.utils.clip_grad_value_(model.parameters(), BOUND)
    return 0.0


def scaled_loop(ctx: Context, batches: int, kind: str, clip: Callable[[Any], float] | None) -> Iterator[Check]:
    import torch

    made = scaling(accelerator(ctx, gradient_accumulation_steps=batches, step_scheduler_with_optimizer=False))
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 1.0)
    wrapped, optimiser, schedule = made.prepare(model, optimiser, schedule)
    skipped, norms = [], []
    for number in range(STEPS * batches):
        with made.accumulate(wrapped):
            value = loss(wrapped, number, ctx)
            bad = number // batches == BAD and ctx.place.rank == 1
            made.backward(value * float("inf") if bad else value)
            if made.sync_gradients and kind == "norm":
                norms.append(float(made.clip_grad_norm_(wrapped.parameters(), BOUND)))
            if made.sync_gradients and kind == "value":
                made.clip_grad_value_(wrapped.parameters(), BOUND)
            optimiser.step()
            if made.sync_gradients:
                skipped.append(made.optimizer_step_was_skipped)
            if not made.optimizer_step_was_skipped:
                schedule.step()
            optimiser.zero_grad()
    expected, wanted = descended(STEPS, batches, clip)
    short = f"clipped by {kind}, {batches} batches a step"
    yield networks.off(f"weights off, {short}", networks.weights(model), networks.weights(expected))
    yield equal(f"skipped steps, {short}", str(skipped), str([step == BAD for step in range(STEPS)]))
    yield equal(f"scale, {short}", made.scaler.get_scale(), SCALE / 2)
    if norms:
        pairs = [(one, other) for step, (one, other) in enumerate(zip(norms, wanted, strict=True)) if step != BAD]
        yield at_most(f"norms off, {short}", max(abs(one / other - 1) for one, other in pairs), networks.SAME)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("cpu_scaler",))
def trainer_scaled_clipping(ctx: Context) -> Iterator[Check]:
    """With fp16, max_grad_norm of the Trainer clips unscaled gradients of a whole step, and logs their norm.

    The logged loss is not scaled either. A step that overflows is skipped, and the schedule waits for the next one.
    """
    bound, rate = 0.05, 0.1
    for batches in (1, 2):
        trainer = stock_trainer.trainer(
            ctx,
            8,
            optim="sgd",
            learning_rate=rate,
            lr_scheduler_type="linear",
            max_grad_norm=bound,
            gradient_accumulation_steps=batches,
            logging_steps=1,
            num_train_epochs=1,
        )
        scaling(trainer.accelerator)
        record = stock_trainer.observed(trainer)
        trainer.train()
        rates = [each[0] for each in record.rates]
        expected = stock_trainer.repeated(
            reference := Reference(ctx), record.steps, descend, rates, mean_of_step(trainer), bound
        )
        logs = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
        short = f"{batches} batches a step"
        yield at_most(f"weights off, {short}", stock_trainer.weights_off(trainer.model, reference), stock_trainer.SAME)
        yield at_most(f"norms off, {short}", stock_trainer.worst([e["grad_norm"] for e in logs], expected.norms), 1e-4)
        yield at_most(f"losses off, {short}", stock_trainer.worst([e["loss"] for e in logs], expected.losses), 1e-3)
        least = min(expected.norms) / bound
        yield equal(f"every norm is clipped, {short}", least > 1, bound=True)


def mean_of_step(trainer: Any) -> Callable[[Reference, list[list[int]]], Any]:
    """The loss of a step: transformers before 4.46 averages the means of its batches, not its tokens.

    https://huggingface.co/blog/gradient_accumulation.
    """
    if hasattr(trainer, "compute_loss_func"):
        return stock_trainer.mean_over_tokens
    return lambda reference, batches: sum(reference.mean(batch) for batch in batches) / len(batches)


def descend(trained: dict[str, Any], rate: float) -> None:
    for tensor in trained.values():
        tensor.sub_(rate * tensor.grad)
        tensor.grad = None


@call(GROUP, phase=Phase.OPTIMIZER, requires=("cpu_scaler",))
def trainer_skipped_steps(ctx: Context) -> Iterator[Check]:
    """A step of the Trainer whose gradients overflow changes no weight, and the schedule stays where it is."""
    import torch

    trainer = stock_trainer.trainer(
        ctx, 8, optim="sgd", learning_rate=0.1, lr_scheduler_type="linear", max_grad_norm=0.0, num_train_epochs=1
    )
    scaling(trainer.accelerator)
    weights, rates = [], []
    calls = iter(range(100))

    def first_overflows(model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> Any:
        weights.append(trainer.model.lm_head.weight.detach().clone())
        rates.append(trainer.optimizer.param_groups[0]["lr"])
        value = model(**inputs)["logits"].float().square().mean()
        return value * float("inf") if next(calls) == 1 else value

    trainer.compute_loss = first_overflows  # compute_loss_func needs transformers 4.46
    trainer.train()
    moved = [bool((one != other).any()) for one, other in itertools.pairwise(weights)]
    yield equal("steps that changed weights", str(moved), "[True, False, True]")
    yield at_most("rates off", stock_trainer.worst(rates, [0.1, 0.075, 0.075, 0.05]), 1e-6)
    yield equal("scale", trainer.accelerator.scaler.get_scale(), SCALE / 2)
    finite = all(bool(torch.isfinite(p).all()) for p in trainer.model.parameters())
    yield equal("weights are finite", finite, bound=True)
