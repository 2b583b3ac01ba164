"""What accelerate's states say: processes, precision, accumulation, and the loader that is being read.

https://huggingface.co/docs/accelerate/package_reference/state
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "accelerate: states"
TRAINED, JUDGED, BATCH = 10, 7, 2  # rows of a training and of an evaluation, and of a batch


def accelerator(ctx: Context, **more: Any) -> Any:
    """An Accelerator with settings, as in a fresh process that no launcher started."""
    from accelerate import Accelerator

    os.environ.update(front_ends.launched(ctx.place))
    forget_states()
    return Accelerator(cpu=ctx.place.kind == "cpu", **more)


def forget_states() -> None:
    """Forget what all Accelerators of a process share."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001 - as accelerate's own documentation does
    GradientState._reset_state()  # noqa: SLF001 - as above


@call(GROUP, phase=Phase.LOAD)
def accelerate_states_of_one_process(ctx: Context) -> Iterator[Check]:
    """A script that no launcher started is process 0 of 1, first and last, on its device, and its states are shared.

    A second Accelerator with another precision is refused.
    """
    from accelerate import Accelerator, PartialState
    from accelerate.state import AcceleratorState

    made = accelerator(ctx)
    for name, state in {
        "Accelerator": made,
        "PartialState": PartialState(),
        "AcceleratorState": AcceleratorState(),
    }.items():
        found = (state.num_processes, state.process_index, state.local_process_index)
        yield equal(f"processes, {name}", str(found), "(1, 0, 0)")
        first = (state.is_main_process, state.is_local_main_process, state.is_last_process, state.use_distributed)
        yield equal(f"first, first here, last, distributed, {name}", str(first), "(True, True, True, False)")
        yield equal(f"kind of device, {name}", state.device.type, ctx.place.kind)
        yield equal(f"kind of processes, {name}", str(getattr(state.distributed_type, "value", "")), "NO")
    yield equal("states that are the same", PartialState().__dict__ == PartialState().__dict__, bound=True)
    yield equal("initialized", (PartialState().initialized, AcceleratorState().initialized) == (True, True), bound=True)
    yield equal("refused, another precision", refusal(Accelerator, mixed_precision="bf16"), "ValueError")
    for count in (5, 1):
        with PartialState().split_between_processes(list(range(count))) as rows:
            yield equal(f"rows of the only process, {count}", str(rows), str(list(range(count))))


@call(GROUP, phase=Phase.FORWARD)
def accelerate_precisions(ctx: Context) -> Iterator[Check]:
    """mixed_precision, of the Accelerator or of the environment, is what states say and what a prepared model does."""
    import torch

    inputs = torch.linspace(-1, 1, 12).reshape(3, 4)
    layer = torch.nn.Linear(4, 2)
    exact = layer(inputs).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = layer(inputs).detach()
    wanted = {"no": exact, "bf16": rounded.float()}
    for kind, values in wanted.items():
        for source in ("argument", "environment"):
            os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
            given = {"mixed_precision": kind} if source == "argument" else {}
            if source == "environment":
                os.environ["ACCELERATE_MIXED_PRECISION"] = kind
            made = accelerator(ctx, **given)
            title = f"{kind} of the {source}"
            found = (made.mixed_precision, made.state.mixed_precision, made.native_amp)
            yield equal(f"precision, {title}", str(found), str((kind, kind, kind != "no")))
            plain = torch.nn.Linear(4, 2)
            plain.load_state_dict(layer.state_dict())
            outputs = made.prepare(plain)(inputs)
            yield equal(f"dtype of outputs, {title}", str(outputs.dtype), "torch.float32")
            yield at_most(f"outputs off, {title}", float((outputs - values).abs().max()), 0.0)
            with made.autocast():
                inner = str((inputs @ inputs.T).dtype)
            yield equal(
                f"dtype within autocast, {title}", inner, "torch.bfloat16" if kind == "bf16" else "torch.float32"
            )
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    yield equal("refused, an unknown precision", refusal(accelerator, ctx, mixed_precision="fp7"), "ValueError")


def loaders(made: Any) -> tuple[Any, Any]:
    """A loader to train on and one to evaluate on, prepared."""
    import torch

    both = [torch.utils.data.DataLoader(torch.arange(rows), batch_size=BATCH) for rows in (TRAINED, JUDGED)]
    train, judge = made.prepare(*both)
    return train, judge


@call(GROUP, phase=Phase.BACKWARD)
def accelerate_loaders_within_loaders(ctx: Context) -> Iterator[Check]:
    """An evaluation within an epoch changes neither when gradients are synchronised nor which rows count as padding."""
    for steps in (1, 2, 3):
        made = accelerator(ctx, gradient_accumulation_steps=steps)
        train, judge = loaders(made)
        yield equal(f"steps of accumulation, {steps}", made.gradient_accumulation_steps, steps)
        for interrupted in (False, True):
            synchronised, ends, seen = [], [], []
            model = made.prepare(_layer())
            for number, batch in enumerate(train):
                if interrupted and number in (1, 2):
                    for rows in judge:
                        seen += made.gather_for_metrics(rows).tolist()
                    yield equal(f"inside a loader, {steps}", made.gradient_state.in_dataloader, bound=True)
                with made.accumulate(model):
                    synchronised.append(bool(made.sync_gradients))
                ends.append(bool(made.gradient_state.end_of_dataloader))
                del batch
            count = TRAINED // BATCH
            wanted = [(number + 1) % steps == 0 or number + 1 == count for number in range(count)]
            title = f"{steps}, interrupted={interrupted}"
            yield equal(f"batches that synchronise, {title}", str(synchronised), str(wanted))
            yield equal(f"last batches, {title}", str(ends), str([False] * (count - 1) + [True]))
            yield equal(f"rows evaluated, {title}", str(seen), str([*range(JUDGED)] * (2 if interrupted else 0)))
            after = (
                made.gradient_state.in_dataloader,
                made.gradient_state.end_of_dataloader,
                made.gradient_state.remainder,
            )
            yield equal(f"after the epoch, {title}", str(after), "(False, False, -1)")


def _layer() -> Any:
    import torch

    return torch.nn.Linear(1, 1)


@call(GROUP, phase=Phase.OPTIMIZER)
def accelerate_accumulation_settings(ctx: Context) -> Iterator[Check]:
    """GradientAccumulationPlugin's settings reach the state, whatever is prepared, and an optimiser steps as they say.

    The loss is divided by the number of steps, and gradients that are not synchronised are kept.
    """
    import torch
    from accelerate.utils import GradientAccumulationPlugin

    rows = torch.arange(1.0, 6.0)
    for steps, by_loader in ((2, True), (2, False), (4, True)):
        plugin = GradientAccumulationPlugin(num_steps=steps, sync_with_dataloader=by_loader, adjust_scheduler=False)
        made = accelerator(ctx, gradient_accumulation_plugin=plugin)
        weight = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(weight.weight)
        optimiser = torch.optim.SGD(weight.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 1.0)
        model, optimiser, schedule, loader = made.prepare(
            weight, optimiser, schedule, torch.utils.data.DataLoader(rows, batch_size=1)
        )
        state = made.gradient_state
        found = (state.num_steps, state.sync_with_dataloader, state.adjust_scheduler, state.initialized)
        title = f"{steps} steps, sync_with_dataloader={by_loader}"
        yield equal(f"settings, {title}", str(found), str((steps, by_loader, False, True)))
        values: list[float] = []
        for _ in range(2):
            for batch in loader:
                with made.accumulate(model):
                    made.backward(model(batch[:, None]).sum())
                    optimiser.step()
                    optimiser.zero_grad()
                values.append(round(float(weight.weight), 4))
        yield equal(f"weights, {title}", str(values), str(expected(rows.tolist(), steps, by_loader=by_loader)))


def expected(rows: list[float], steps: int, *, by_loader: bool) -> list[float]:
    """The weight after each batch of two epochs: its gradient is the row over ``steps``, its rate 1."""
    weight, kept, found = 0.0, 0.0, []
    for number, row in enumerate([*rows, *rows], start=1):
        kept += row / steps
        within = (number - 1) % len(rows) + 1
        if (by_loader and (within % steps == 0 or within == len(rows))) or (not by_loader and number % steps == 0):
            weight, kept = weight - kept, 0.0
        found.append(round(weight, 4))
    return found


@call(GROUP, phase=Phase.LOAD, ranks=2)
def accelerate_on_cpus_by_a_variable(ctx: Context) -> Iterator[Check]:
    """ACCELERATE_USE_CPU, as ``accelerate launch --cpu`` sets it, runs all processes on CPUs as ``cpu=True`` does."""
    from accelerate import Accelerator

    if ctx.place.kind != "cpu":
        return  # the group of these ranks is of their GPUs
    os.environ.update(front_ends.launched(ctx.place))
    before = os.environ.pop("ACCELERATE_USE_CPU", None)
    for title, value, more in (("the variable", "true", {}), ("the argument", None, {"cpu": True})):
        forget_states()
        if value is not None:
            os.environ["ACCELERATE_USE_CPU"] = value
        try:
            made = Accelerator(**more)
        finally:
            os.environ.pop("ACCELERATE_USE_CPU", None)
        yield equal(f"kind of processes by {title}", str(made.distributed_type).rpartition(".")[2], "MULTI_CPU")
        yield equal(f"device by {title}", made.device.type, "cpu")
        found = (made.num_processes, made.process_index, made.use_distributed)
        yield equal(f"processes, this one, and distribution by {title}", str(found), str((2, ctx.place.rank, True)))
    if before is not None:
        os.environ["ACCELERATE_USE_CPU"] = before
