"""Flows with round trips: save and reload, interrupt and resume, merge and unmerge, generate.

The second stage opens what the first one saved, in fresh processes that know only the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.apply import build, checkpoints, front_ends, training
from cases.apply.training import Trainee
from cases.checks import observers, shards
from cases.checks.engagement import fsdp
from cases.model import adapters, architectures, heads, tiny
from cases.reference import tolerance, twin
from cases.reference.twin import Trajectory
from cases.space.options import SHARDED
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from pathlib import Path

    from cases.apply.context import Context

STOP = 1  # steps before the interruption: the others need the schedule and Adam's moments


def train_and_check(ctx: Context) -> Trainee:
    """Train a model, report its checks, and keep its logits for later comparisons."""
    job = front_ends.prepare(ctx)
    front_ends.steps(job, range(tiny.STEPS))
    with ctx.reporter.observing():
        ctx.reporter.checks(training.checks(job))
    job.found.logits = training.logits(job)
    with ctx.reporter.observing():
        ctx.reporter.checks(tolerance.inference(job.found.logits, ctx.twin(), ctx.options))
    return job


def save(ctx: Context) -> None:
    job = train_and_check(ctx)
    ctx.reporter.phase(Phase.SAVE)
    front_ends.save_model(job, ctx.kept)
    with ctx.reporter.observing():
        ctx.reporter.checks(list(fsdp.state_dict_type(job.recorder)))
        save_trajectory(job, ctx.kept)


def reload(ctx: Context) -> None:
    """Compare the files, the reloaded weights and their logits with those of the training process."""
    own = load_trajectory(ctx.given)
    ctx.reporter.phase(Phase.RELOAD)
    job = checkpoints.load_model(ctx)
    with ctx.reporter.observing():
        found = {name: tensor.float() for name, tensor in observers.weights(job.wrapped, ctx.options).items()}
        kept = adapters.expected_on_disk(own.after, ctx.options)
        ctx.reporter.checks([*checkpoints.files(own, ctx), *restored_weights(found, kept)])
        if ctx.options.method == "full":
            ctx.reporter.checks(on_disk(ctx, own, tolerance.bound("logits", ctx.options)))
    again = training.logits(job)
    with ctx.reporter.observing():
        # FSDP's mixed precision computes in half precision; the reloaded model computes in its weights' dtype.
        kind = "logits" if ctx.options.mixed_precision != "off" and ctx.place.world_size == 1 else "reload"
        ctx.reporter.checks(
            [at_most("reloaded logits", tolerance.relative(again, own.logits), tolerance.bound(kind, ctx.options))]
        )


def on_disk(ctx: Context, own: Trajectory, allowed: float) -> list[Check]:
    """Compare the logits before saving with those that the reference computes from the files, if they are one model.

    It computes nothing from files that lack a tensor; the library may have filled that one with new values.
    """
    if ctx.options.quant != "none" or not list(ctx.given.glob("model*.safetensors")):
        return []
    try:
        found = twin.logits_of(ctx.given, ctx.options)
    except KeyError as lacking:
        return [equal("tensor that the saved files lack", str(lacking.args[0]), "none")]
    return [at_most("logits of the saved files, by the reference", tolerance.relative(found, own.logits), allowed)]


def restored_weights(found: dict[str, Any], kept: dict[str, Any]) -> list[Check]:
    """Check that every trained weight is restored bit by bit."""
    lost = sum(name not in found for name in kept)
    differ = sum(not equal_bits(found[name], kept[name]) for name in kept if name in found)
    return [
        equal("trained parameters that did not come back", lost, 0),
        equal("reloaded parameters that differ", differ, 0),
    ]


def equal_bits(found: Any, expected: Any) -> bool:
    return found.shape == expected.shape and observers.digest(found) == observers.digest(expected)


def interrupt(ctx: Context) -> None:
    """Run the first step and save a training checkpoint."""
    job = front_ends.prepare(ctx)
    front_ends.steps(job, range(STOP))
    ctx.reporter.phase(Phase.SAVE)
    front_ends.save_training(job, ctx.kept)
    with ctx.reporter.observing():
        ctx.reporter.checks(list(fsdp.state_dict_type(job.recorder)))
        save_trajectory(job, ctx.kept)


def resume(ctx: Context) -> None:
    """Run the remaining steps in fresh processes; the trajectory must equal uninterrupted training."""
    own = load_trajectory(ctx.given)
    job = front_ends.prepare(ctx)
    ctx.reporter.phase(Phase.RESUME)
    front_ends.load_training(job, ctx.given)
    finish_training(job, own)


def finish_training(job: Trainee, own: Trajectory) -> None:
    job.recorder.restart(tiny.STEPS - STOP)
    job.found.losses, job.found.gradients, job.found.between = own.losses, own.gradients, own.between
    front_ends.steps(job, range(STOP, tiny.STEPS))
    with job.ctx.reporter.observing():
        job.ctx.reporter.checks(training.checks(job))


def merge(ctx: Context) -> None:
    """Merge, unmerge and merge_and_unload: logits stay within rounding, and unmerging restores the weights."""
    job = train_and_check(ctx)
    ctx.reporter.phase(Phase.MERGE)
    with observers.writable(job.wrapped, ctx.options):
        before = observers.base_weights(job.model)
        job.model.merge_adapter()
        merged = observers.base_weights(job.model)
    once = training.logits(job)
    ctx.reporter.phase(Phase.MERGE)
    with observers.writable(job.wrapped, ctx.options):
        job.model.unmerge_adapter()
        after = observers.base_weights(job.model)
    apart = training.logits(job)
    with ctx.reporter.observing():
        ctx.reporter.checks(
            [
                at_least(
                    "weights that merging changed", changed(before, merged), architectures.spec(ctx.options).adapted
                ),
                *tolerance.merged("merged logits", once, job.found.logits, ctx.options),
                *tolerance.merged("unmerged logits", apart, job.found.logits, ctx.options),
                tolerance.unmerged(after, before, ctx.options),
            ]
        )
    merge_for_good(job)


def changed(before: dict[str, Any], after: dict[str, Any]) -> int:
    return sum(not equal_bits(after[name], before[name]) for name in before)


def merge_for_good(job: Trainee) -> Any:
    """Run ``merge_and_unload`` and check that nothing of the adapter remains in the model.

    Gathers a sharded model first, into rank 0's memory; the other ranks return None. Collective.
    """
    reporter = job.ctx.reporter
    reporter.phase(Phase.MERGE)
    whole = checkpoints.gathered(job) if job.options.strategy in SHARDED else job.model
    if whole is None:
        return None
    merged = whole.merge_and_unload()
    logits = training.logits(with_model(job, merged))
    with reporter.observing():
        left = sum(tiny.is_adapter(name) for name, _ in merged.named_parameters())
        reporter.checks(
            [
                equal("adapter parameters left in the merged model", left, 0),
                *heads.tie_checks(merged, job.options, "in the merged model"),
                *tolerance.merged("logits of the merged model", logits, job.found.logits, job.options),
            ]
        )
    return merged


def with_model(job: Trainee, model: Any) -> Trainee:
    return Trainee(job.ctx, model, model, None, None, job.recorder, {}, {}, [])


def merge_and_save(ctx: Context) -> None:
    job = train_and_check(ctx)
    merged = merge_for_good(job)
    ctx.reporter.phase(Phase.SAVE)
    if merged is not None and ctx.place.rank == 0:
        merged.save_pretrained(ctx.kept)
    with ctx.reporter.observing():
        save_trajectory(job, ctx.kept)


def reload_merged(ctx: Context) -> None:
    """Check that the merged checkpoint loads without PEFT and gives the adapter's logits."""
    own = load_trajectory(ctx.given)
    ctx.reporter.phase(Phase.RELOAD)
    model = build.load_from(ctx.given, ctx.options, ctx.place)
    logits = training.logits(Trainee(ctx, model, model, None, None, None, {}, {}, []))  # type: ignore[arg-type]
    with ctx.reporter.observing():
        ctx.reporter.checks(
            [
                equal("adapter files beside the merged model", len(list(ctx.given.glob("adapter_*"))), 0),
                *heads.tie_checks(model, ctx.options, "in the reloaded merged model"),
                *tolerance.merged("logits of the reloaded merged model", logits, own.logits, ctx.options),
                *on_disk(ctx, own, tolerance.merge_bound(ctx.options)),
            ]
        )


def generate(ctx: Context) -> None:
    """Compare greedy generation with the twin's, token by token."""
    job = train_and_check(ctx)
    ctx.reporter.phase(Phase.INFER)
    with build.gathered(job.wrapped, ctx.options):
        job.recorder.root_whole = shards.root_is_whole(job.wrapped) if ctx.options.strategy in SHARDED else None
        tokens = build.generate(job.wrapped, ctx)
    with ctx.reporter.observing():
        ctx.reporter.checks(list(fsdp.summon_full_params(job.recorder)))
        ctx.reporter.checks(tolerance.generation(tokens, ctx.twin(), ctx.options))


def save_for_another_set(ctx: Context) -> None:
    """Run the first step and save the adapter."""
    job = training.prepare(ctx)
    training.steps(job, range(STOP))
    job.found.logits = training.logits(job)
    ctx.reporter.phase(Phase.SAVE)
    checkpoints.save_model(job, ctx.kept)
    with ctx.reporter.observing():
        save_trajectory(job, ctx.kept)


def use_from_another_set(ctx: Context) -> None:
    """Load an adapter, possibly from another version set: compare logits, continue training, merge."""
    own = load_trajectory(ctx.given)
    ctx.reporter.phase(Phase.RELOAD)
    job = checkpoints.load_model(ctx, to_train=True)
    again = training.logits(job)
    with ctx.reporter.observing():
        ctx.reporter.checks(
            [at_most("reloaded logits", tolerance.relative(again, own.logits), tolerance.bound("reload", ctx.options))]
        )
    for _ in range(STOP):
        job.scheduler.step()  # an adapter file holds no schedule
    finish_training(job, own)
    if ctx.options.method not in ("prompt", "prefix"):
        job.found.logits = training.logits(job)
        merge_for_good(job)


def save_trajectory(job: Trainee, folder: Path) -> None:
    """Save this process's trajectory for the next stage; all ranks gather, rank 0 writes."""
    import torch

    weights = observers.weights(job.wrapped, job.options)
    job.found.after = {name: weights[name].float() for name in sorted(job.recorder.trainable) if name in weights}
    if job.ctx.place.rank == 0:
        torch.save(vars(job.found), folder / "own.pt")


def load_trajectory(folder: Path) -> Trajectory:
    import torch

    return Trajectory(**torch.load(folder / "own.pt", weights_only=True))
