"""Loops with accelerate: accumulation settings, mixed precision, saved objects, and averaged weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.trainers.stock_trainer import gathered
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Loops with accelerate"
RATE, BATCHES, STEPS = 0.1, 7, 3
NORM = 0.05  # smaller than the gradients' norm
BROAD = 2.0**-4  # relative, in bfloat16


def descent(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=RATE)


def reference(groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The weights after a step for each group of batches, on the sum of their losses by ``STEPS``."""
    model = network()
    optimiser = descent(model)
    for group in groups:
        for number in group:
            (loss(model, number) / STEPS).backward()
        optimiser.step()
        optimiser.zero_grad()
    return networks.weights(model)


def looped(ctx: Context, epochs: int = 1, **plugin: Any) -> tuple[Any, list[int], list[int]]:
    """A loop over seven batches: the model, the batches after which it stepped, and the schedule's steps by batch."""
    import torch
    from accelerate.utils import GradientAccumulationPlugin
    from torch.utils.data import DataLoader

    made = accelerator(ctx, gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=STEPS, **plugin))
    model = network()
    optimiser = descent(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 1.0)
    loader = DataLoader(range(BATCHES * ctx.place.world_size))
    model, optimiser, schedule, loader = made.prepare(model, optimiser, schedule, loader)
    stepped: list[int] = []
    counted: list[int] = []
    number = 0
    for _ in range(epochs):
        for _ in loader:
            with made.accumulate(model):
                made.backward(loss(model, number, ctx))
                optimiser.step()
                schedule.step()
                optimiser.zero_grad()
            number += 1
            stepped += [number] * made.sync_gradients
            counted.append(schedule.scheduler.last_epoch)
    return model, stepped, counted


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accumulate_over_epochs(ctx: Context) -> Iterator[Check]:
    """With sync_with_dataloader=False, an accumulation continues with the next epoch's batches."""
    model, stepped, _ = looped(ctx, 2, sync_with_dataloader=False)
    yield equal("batches after which it steps", str(stepped), "[3, 6, 9, 12]")
    expected = reference([range(begin, begin + 3) for begin in (0, 3, 6, 9)])
    yield networks.off("weights off", networks.weights(model), expected)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accumulate_each_batch(ctx: Context) -> Iterator[Check]:
    """With sync_each_batch=True, ranks average gradients after each batch, and the steps are the same."""
    model, stepped, _ = looped(ctx, 2, sync_each_batch=True)
    groups = [[0, 1, 2], [3, 4, 5], [6], [7, 8, 9], [10, 11, 12], [13]]
    yield networks.off("weights off", networks.weights(model), reference(groups))
    yield equal("batches after which it steps", str(stepped), "[3, 6, 7, 10, 13, 14]")


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accumulate_unadjusted_scheduler(ctx: Context) -> Iterator[Check]:
    """With adjust_scheduler=False, a schedule advances with every step of the optimiser, once for each rank."""
    _, _, counted = looped(ctx, adjust_scheduler=False)
    world = ctx.place.world_size
    yield equal("steps of the schedule", str(counted), str([0, 0, world, world, world, 2 * world, 3 * world]))


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def local_sgd(ctx: Context) -> Iterator[Check]:
    """LocalSGD lets ranks train apart and averages their weights after every three steps, and at the end.

    https://huggingface.co/docs/accelerate/usage_guides/local_sgd
    """
    from accelerate.local_sgd import LocalSGD

    made = accelerator(ctx)
    model, ranks = network(), [network() for _ in range(ctx.place.world_size)]
    wrapped, optimiser = made.prepare(model, descent(model))
    with LocalSGD(accelerator=made, model=wrapped, local_sgd_steps=3, enabled=True) as averaging:
        for number in range(4):
            made.backward(loss(wrapped, number, ctx))
            optimiser.step()
            optimiser.zero_grad()
            averaging.step()
    optimisers = [descent(each) for each in ranks]
    for number in range(4):
        inputs, targets = (each.tensor_split(len(ranks)) for each in networks.data(number))
        for rank, (plain, own) in enumerate(zip(ranks, optimisers, strict=True)):
            (plain(inputs[rank]) - targets[rank]).square().mean().backward()
            own.step()
            own.zero_grad()
        if number == 2:  # noqa: PLR2004 - the third step
            averaged(ranks)
    averaged(ranks)
    yield networks.off("weights off", networks.weights(model), networks.weights(ranks[0]))


def averaged(models: Sequence[Any]) -> None:
    """Give every model the mean of the weights of all."""
    import torch

    with torch.no_grad():
        for tensors in zip(*(each.parameters() for each in models), strict=True):
            mean = sum(tensors) / len(tensors)
            for tensor in tensors:
                tensor.copy_(mean)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_bf16(ctx: Context) -> Iterator[Check]:
    """mixed_precision="bf16" computes in bfloat16, gives float32 outputs and keeps float32 weights and gradients."""
    made = accelerator(ctx, mixed_precision="bf16")
    model = network()
    inside: list[str] = []
    model.second.register_forward_hook(lambda _module, _inputs, output: inside.append(str(output.dtype)))
    wrapped = made.prepare(model)
    outputs = wrapped(networks.share(networks.data(0)[0], ctx))
    made.backward(loss(wrapped, 0, ctx))
    expected = networks.expected_gradients(network(), [loss])
    yield equal("dtypes within", str(set(inside)), "{'torch.bfloat16'}")
    yield equal("dtype of the output", str(outputs.dtype), "torch.float32")
    kinds = {str(each.dtype) for p in model.parameters() for each in (p, p.grad)}
    yield equal("dtypes of parameters and gradients", str(kinds), "{'torch.float32'}")
    yield networks.off("gradients off", networks.gradients(model), expected, BROAD)
    with made.autocast():
        product = networks.data(0)[0] @ networks.data(0)[0].T
    yield equal("dtype in autocast", str(product.dtype), "torch.bfloat16")
    bare = made.unwrap_model(wrapped, keep_fp32_wrapper=False)
    yield equal("dtype of the bare model's output", str(bare(networks.data(0)[0]).dtype), "torch.float32")


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accelerate_bf16_clips(ctx: Context) -> Iterator[Check]:
    """With mixed_precision="bf16", clip_grad_norm_ returns the norm before and leaves one of max_norm.

    Between steps of an accumulation, it clips nothing.
    """
    made = accelerator(ctx, mixed_precision="bf16", gradient_accumulation_steps=2)
    model = network()
    wrapped = made.prepare(model)
    exact = networks.expected_gradients(network(), [loss])
    norm = float(sum(each.double().square().sum() for each in exact.values())) ** 0.5
    found: Any = None
    for number in range(2):
        with made.accumulate(wrapped):
            made.backward(loss(wrapped, 0, ctx))
            found = made.clip_grad_norm_(model.parameters(), NORM) if made.sync_gradients else None
            yield equal(f"clipped after batch {number}", found is not None, bool(number))
    yield at_most("norm off", abs(float(found) / norm - 1), BROAD)
    clipped = {name: each * NORM / norm for name, each in exact.items()}
    yield networks.off("gradients off", networks.gradients(model), clipped, BROAD)


@call(GROUP, phase=Phase.RESUME, ranks=2)
def saved_objects(ctx: Context) -> Iterator[Check]:
    """load_state restores what register_for_checkpointing names, besides model, optimiser and schedule, on all ranks.

    ``total_limit`` keeps the last folders, which automatic names count up.
    """
    import torch
    from accelerate.utils import ProjectConfiguration

    class CallCount:
        value = 0

        def state_dict(self) -> dict[str, int]:
            return {"value": self.value}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.value = state["value"]

    folder = ctx.kept / "project"
    project = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True, total_limit=2)
    made = accelerator(ctx, project_config=project)
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (step + 1))
    counter = CallCount()
    wrapped, optimiser, schedule = made.prepare(model, optimiser, schedule)
    made.register_for_checkpointing(counter)
    states = []
    for number in range(5):
        made.backward(loss(wrapped, number, ctx))
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        counter.value = 10 + number
        made.save_state()
        states.append((networks.weights(model), schedule.get_last_lr()[0], moments(optimiser)))
        made.wait_for_everyone()
    kept = sorted(each.name for each in (folder / "checkpoints").iterdir())
    yield equal("checkpoints kept", str(kept), "['checkpoint_3', 'checkpoint_4']")
    made.load_state(str(folder / "checkpoints" / "checkpoint_3"))
    weights, rate, state = states[3]
    yield equal("value of the object", str(gathered(ctx, counter.value)), str([13] * ctx.place.world_size))
    yield networks.off("weights off", networks.weights(model), weights, 0.0)
    yield networks.off("moments off", moments(optimiser), state, 0.0)
    yield equal("learning rate", schedule.get_last_lr()[0], rate)


def moments(optimiser: Any) -> dict[str, Any]:
    return {
        f"{number}.{name}": tensor.clone()
        for number, state in optimiser.state_dict()["state"].items()
        for name, tensor in state.items()
    }


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accelerate_trigger(ctx: Context) -> Iterator[Check]:
    """check_trigger is true on all ranks once after one rank called set_trigger."""
    made = accelerator(ctx)
    seen = []
    for number in range(3):
        if number == 1 and ctx.place.rank == 1:
            made.set_trigger()
        seen.append(made.check_trigger())
    yield equal("triggered", str(seen), "[False, True, False]")
