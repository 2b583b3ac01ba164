"""Training with accelerate: its wrapping, data loader, precision, accumulation and checkpoints."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.apply import build, training
from cases.apply.optimiser_step import FIRST_SCALE
from cases.apply.step_hook import StepHook
from cases.checks import observers
from cases.model import data, tiny
from cases.reference.quantisation import MAX_NORM
from cases.space.verdict import LackingError, Phase

if TYPE_CHECKING:
    from pathlib import Path

    from cases.apply.context import Context
    from cases.apply.training import Trainee

STATE = "state"  # folder of a checkpoint


@dataclass(frozen=True)
class AccelerateDriver:
    accelerator: Any
    loader: Any
    watch: StepHook


def prepare(ctx: Context) -> Trainee:
    options, place, reporter = ctx.options, ctx.place, ctx.reporter
    reporter.phase(Phase.LOAD)
    accelerator = create_accelerator(ctx)
    base = build.load(options, place, ctx.cache)
    loading = training.quantisation_checks(base, options)
    reporter.phase(Phase.ADAPT)
    job = training.recorded(ctx, build.adapt(base, options), loading)
    watch = StepHook(job)
    optimiser = build.optimiser(job.model, options)
    watch.optimiser(optimiser)
    reporter.phase(Phase.WRAP)
    if options.strategy == "ddp" and place.rank > 0:
        training.corrupt(job.model)
    job.wrapped, job.optimiser, batches, job.scheduler = accelerator.prepare(
        job.model, optimiser, loader(ctx), build.scheduler(optimiser)
    )
    job.front = AccelerateDriver(accelerator, batches, watch)
    job.recorder.wrapped, job.recorder.front = job.wrapped, accelerator
    if options.strategy == "ddp":
        with reporter.observing():
            job.recorder.synced = training.equal_bits(observers.weights(job.wrapped, options), job.before)
    return job


def create_accelerator(ctx: Context) -> Any:
    """Create an Accelerator that does not step the schedule: it would step it once per process."""
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs, GradScalerKwargs

    options = ctx.options
    ctx.reporter.facts({"schedule": "step_scheduler_with_optimizer=False, stepped when gradients are synchronised"})
    return Accelerator(
        cpu=ctx.place.kind == "cpu",
        mixed_precision="no" if options.autocast == "off" else options.autocast,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        step_scheduler_with_optimizer=False,
        kwargs_handlers=[
            GradScalerKwargs(init_scale=FIRST_SCALE),
            DistributedDataParallelKwargs(
                find_unused_parameters=options.find_unused_parameters,
                static_graph=options.static_graph,
                gradient_as_bucket_view=options.gradient_as_bucket_view,
            ),
        ],
    )


def loader(ctx: Context) -> Any:
    """All rows in order; accelerate gives each process every so-many-th batch, so that a step sees a global batch."""
    from torch.utils.data import DataLoader

    batches = [data.rows(step, ctx.options) for step in range(tiny.STEPS)]
    rows = [
        {name: values[0] for name, values in row.arguments.items()}
        for batch in batches
        for row in batch.parts(len(batch.ids))
    ]
    return DataLoader(rows, batch_size=tiny.rows_at_once(ctx.place.world_size, ctx.options.gradient_accumulation_steps))


def steps(job: Trainee, numbers: range) -> None:
    driver: AccelerateDriver = job.front
    accumulation = job.options.gradient_accumulation_steps
    batches = driver.loader
    if numbers.start:
        batches = driver.accelerator.skip_first_batches(batches, numbers.start * accumulation)
    for batch in itertools.islice(batches, len(numbers) * accumulation):
        with driver.accelerator.accumulate(job.wrapped):
            step(job, driver, batch)
    driver.watch.complete(numbers.stop)


def step(job: Trainee, driver: AccelerateDriver, batch: dict[str, Any]) -> None:
    """Train on one batch; the last batch of a global step also steps the optimiser.

    Raises:
        LackingError: the model returned no loss.
    """
    accelerator, reporter = driver.accelerator, job.ctx.reporter
    reporter.phase(Phase.FORWARD)
    job.wrapped.train()
    loss = job.wrapped(**batch).loss
    if loss is None:
        raise LackingError("the model received labels and returned no loss")
    reporter.phase(Phase.BACKWARD)
    accelerator.backward(loss)
    driver.watch.loss(loss, 1 / job.options.gradient_accumulation_steps)
    if accelerator.sync_gradients and job.options.clip_grad_norm:
        norm = accelerator.clip_grad_norm_(job.wrapped.parameters(), MAX_NORM)
        job.recorder.trace.norms.append(float(observers.whole(norm)))
    job.optimiser.step()
    if accelerator.sync_gradients and not accelerator.optimizer_step_was_skipped:
        job.scheduler.step()
    job.optimiser.zero_grad()


def save_model(job: Trainee, folder: Path) -> None:
    """Save the model as accelerate's documentation recommends."""
    accelerator = job.front.accelerator
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(job.wrapped).save_pretrained(
        folder,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
        state_dict=accelerator.get_state_dict(job.wrapped),
    )


def save_training(job: Trainee, folder: Path) -> None:
    job.front.accelerator.save_state(str(folder / STATE))


def load_training(job: Trainee, folder: Path) -> None:
    job.front.accelerator.load_state(str(folder / STATE))
