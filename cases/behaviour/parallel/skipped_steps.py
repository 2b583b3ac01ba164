"""Steps that the scaler of gradients skips after an overflow: weights, scale and schedule, by accelerate.

A skipped step must not advance the schedule (https://huggingface.co/docs/accelerate/concept_guides/performance, and
"step was skipped" in https://huggingface.co/docs/accelerate/package_reference/torch_wrappers). accelerate has no fp16
on a CPU, so the cells give the accelerator torch's scaler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.accelerate_loops import descent
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.parallel.networks import loss, network
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Loops with accelerate"
NEEDS = ("cpu_scaler",)
SCALE, STEPS = 16.0, 6
OVERFLOWING = (0, 1, 4)  # these steps have infinite gradients
RATE = 0.1


def scaled(ctx: Context, **arguments: Any) -> Any:
    """An accelerator whose scaler starts at ``SCALE`` and doubles it after two good steps."""
    import torch

    made = accelerator(ctx, **arguments)
    made.scaler = torch.amp.GradScaler(ctx.place.kind, init_scale=SCALE, growth_interval=2)
    return made


def schedule_of(optimiser: Any) -> Any:
    import torch

    return torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (step + 1))


def looped(ctx: Context, overflowing_rank: int | None = None, **arguments: Any) -> dict[str, Any]:
    """A loop in which some steps overflow: what each step left, and the weights at the end."""
    made = scaled(ctx, **arguments)
    model = network()
    optimiser = descent(model)
    wrapped, optimiser, schedule = made.prepare(model, optimiser, schedule_of(optimiser))
    found: dict[str, Any] = {"skipped": [], "scales": [], "counted": []}
    for number in range(STEPS):
        term = loss(wrapped, number, ctx)
        overflows = number in OVERFLOWING and overflowing_rank in (None, ctx.place.rank)
        made.backward(term * float("inf") if overflows else term)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        found["skipped"].append(int(made.optimizer_step_was_skipped))
        found["scales"].append(made.scaler.get_scale())
        found["counted"].append(schedule.scheduler.last_epoch)
    return {**found, "weights": networks.weights(model)}


def expected_weights(advance: int) -> dict[str, Any]:
    """The weights of a loop in one process that knows which steps to leave out."""
    model = network()
    optimiser = descent(model)
    good = 0
    for number in range(STEPS):
        if number in OVERFLOWING:
            continue
        optimiser.param_groups[0]["lr"] = RATE / (good * advance + 1)
        loss(model, number).backward()
        optimiser.step()
        optimiser.zero_grad()
        good += 1
    return networks.weights(model)


def compared(found: dict[str, Any], advance: int) -> Iterator[Check]:
    """``advance``: the positions by which a good step advances the schedule."""
    good = [number not in OVERFLOWING for number in range(STEPS)]
    yield equal("skipped", str(found["skipped"]), str([int(not each) for each in good]))
    yield equal("scales", str(found["scales"]), str([8.0, 4.0, 4.0, 8.0, 4.0, 4.0]))
    counted = [sum(good[: number + 1]) * advance for number in range(STEPS)]
    yield equal("steps of the schedule", str(found["counted"]), str(counted))
    yield networks.off("weights off", found["weights"], expected_weights(advance))


@call(GROUP, phase=Phase.OPTIMIZER, requires=NEEDS)
def accelerate_skipped_steps(ctx: Context) -> Iterator[Check]:
    """A step that the scaler skips changes no weight, halves the scale and does not advance the prepared schedule."""
    yield from compared(looped(ctx), 1)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS)
def accelerate_skipped_steps_of_one_rank(ctx: Context) -> Iterator[Check]:
    """If gradients of one rank overflow, both ranks skip the step, and neither advances its schedule."""
    yield from compared(looped(ctx, 1), ctx.place.world_size)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS)
def accelerate_skipped_steps_split_batches(ctx: Context) -> Iterator[Check]:
    """With split_batches=True, a skipped step does not advance the schedule, and a good one advances it by one."""
    from accelerate.utils import DataLoaderConfiguration

    yield from compared(looped(ctx, dataloader_config=DataLoaderConfiguration(split_batches=True)), 1)


@call(GROUP, phase=Phase.OPTIMIZER, requires=NEEDS)
def accelerate_skipped_steps_alone(ctx: Context) -> Iterator[Check]:
    """With step_scheduler_with_optimizer=False, a schedule advances whenever the script steps it, skipped or not."""
    found = looped(ctx, step_scheduler_with_optimizer=False)
    yield equal("steps of the schedule", str(found["counted"]), str(list(range(1, STEPS + 1))))


@call(GROUP, phase=Phase.OPTIMIZER, requires=NEEDS)
def accelerate_skipped_step_of_one_optimiser(ctx: Context) -> Iterator[Check]:
    """Of two prepared optimisers, a skipped step of the first leaves the schedule of the second alone."""
    made = scaled(ctx)
    models = [network(), network()]
    optimisers = [descent(each) for each in models]
    schedules = [schedule_of(each) for each in optimisers]
    both = made.prepare(*models, *optimisers, *schedules)
    before = networks.weights(models[0])
    for number, (model, optimiser, schedule) in enumerate(zip(both[:2], both[2:4], both[4:], strict=True)):
        made.backward(loss(model, 0, ctx) * (1.0 if number else float("inf")))
        optimiser.step()
        schedule.step()
    counted = [each.scheduler.last_epoch for each in both[4:]]
    yield equal("steps of the schedules", str(counted), "[0, 1]")
    yield equal("skipped", str([int(each.step_was_skipped) for each in both[2:4]]), "[1, 0]")
    yield networks.off("weights of the first off", networks.weights(models[0]), before, 0.0)
    plain = network()
    optimiser = descent(plain)
    loss(plain, 0).backward()
    optimiser.step()
    yield networks.off("weights of the second off", networks.weights(models[1]), networks.weights(plain))


@call(GROUP, phase=Phase.OPTIMIZER, requires=NEEDS)
def accelerate_clips_scaled_gradients(ctx: Context) -> Iterator[Check]:
    """With a scaler, the unscaled gradients are clipped, and clip_grad_norm_ returns their norm."""
    made = scaled(ctx)
    made.state._mixed_precision = "fp16"  # noqa: SLF001 - as on a GPU, where the argument is allowed
    made.native_amp = True
    model = network()
    exact = networks.expected_gradients(network(), [loss])
    norm = float(sum(each.double().square().sum() for each in exact.values())) ** 0.5
    wrapped, optimiser = model, made.prepare_optimizer(descent(model))
    made.backward(loss(wrapped, 0, ctx))
    found = float(made.clip_grad_norm_(model.parameters(), norm / 4))
    yield at_most("norm off", abs(found / norm - 1), networks.SAME)
    clipped = {name: each / 4 for name, each in exact.items()}
    yield networks.off("gradients off", networks.gradients(model), clipped)
    optimiser.step()
    wanted = {name: each - RATE * clipped[name] for name, each in networks.weights(network()).items()}
    yield networks.off("weights off", networks.weights(model), wanted)
