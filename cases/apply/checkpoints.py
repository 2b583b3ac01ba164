"""Checkpoints as users write and read them, per strategy: the model to use, and the whole state of a training."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from cases.apply import build, compat, training
from cases.checks import shards
from cases.model import adapters, heads, tiny
from cases.space.options import SHARDED
from cases.space.verdict import Check, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.apply.training import Trainee
    from cases.reference.twin import Trajectory
    from cases.space.options import Options

HEADER_BYTES = 16_384  # of a safetensors file, generously


def save_model(job: Trainee, folder: Path) -> None:
    """Save the adapter, or the model of full fine-tuning, with ``save_pretrained``; sharded states with DCP."""
    options = job.options
    if options.strategy in SHARDED and options.state_dict_type == "sharded":
        import torch.distributed.checkpoint as dcp

        dcp.save({"model": model_state(job, full=False)}, checkpoint_id=str(folder / "model"))
        return
    state = model_state(job, full=True) if options.strategy in SHARDED else None
    if job.ctx.place.rank == 0:
        job.model.save_pretrained(folder, **({} if state is None else {"state_dict": state}))


def load_model(ctx: Context, *, to_train: bool = False) -> Trainee:
    """Load what ``save_model`` wrote, as a user of the checkpoint would."""
    options = ctx.options
    if options.strategy in SHARDED and options.state_dict_type == "sharded":
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_model_state_dict

        job = training.prepare(ctx)
        held = {"model": model_state(job, full=False)}
        dcp.load(held, checkpoint_id=str(ctx.given / "model"))
        set_model_state_dict(job.wrapped, held["model"])
        return job
    if options.method == "full":
        model = build.load_from(ctx.given, options, ctx.place)
    else:
        base = build.load(options, ctx.place, ctx.cache, filled=False)
        model = compat.adapter_from(ctx.given, base, options, to_train=to_train)
    return training.loaded(ctx, model)


def model_state(job: Trainee, *, full: bool) -> dict[str, Any]:
    """The state of a sharded model: whole tensors in rank 0's memory, or this rank's shards. Collective."""
    found: dict[str, Any]
    if full and in_fsdp1_way(job.options):
        with whole_state(job):
            found = job.wrapped.state_dict()
    else:
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        found = get_model_state_dict(job.wrapped, options=state_options(job.options, full=full))
    job.recorder.saved_entries = shards.entries(found, job.recorder.dtypes)
    return found


def state_options(options: Options, *, full: bool) -> Any:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    return StateDictOptions(full_state_dict=full, cpu_offload=full and options.state_dict_type != "full_on_device")


def in_fsdp1_way(options: Options) -> bool:
    """Return whether FSDP1's own methods gather the full state, as in accelerate and most scripts."""
    return options.strategy == "fsdp1" and options.state_dict_type != "full_dcp"


@contextlib.contextmanager
def whole_state(job: Trainee, *, everywhere: bool = False, offload: bool = True) -> Iterator[None]:
    """A context in which FSDP1 gathers full states: into rank 0's memory, every rank's, or every rank's device."""
    from torch.distributed.fsdp import (
        FullOptimStateDictConfig,
        FullStateDictConfig,
        FullyShardedDataParallel,
        StateDictType,
    )

    offload = offload and job.options.state_dict_type != "full_on_device"
    where = {"offload_to_cpu": offload, "rank0_only": offload and not everywhere}
    with FullyShardedDataParallel.state_dict_type(
        job.wrapped, StateDictType.FULL_STATE_DICT, FullStateDictConfig(**where), FullOptimStateDictConfig(**where)
    ):
        yield


def gathered(job: Trainee) -> Any:
    """The gathered adapted model on rank 0, None on the other ranks. Collective."""
    ctx = job.ctx
    if ctx.options.strategy == "fsdp1":
        with whole_state(job, offload=False):  # stays on the device, where the merge runs
            state = job.wrapped.state_dict()
    else:
        state = model_state(job, full=True)
    if ctx.place.rank > 0:
        return None
    model = build.adapt(build.load(ctx.options, ctx.place, ctx.cache), ctx.options)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    model.load_state_dict({name: state[name] for name in trained & state.keys()}, strict=False)
    ctx.reporter.checks([equal("trained parameters missing in the gathered state", len(trained - state.keys()), 0)])
    return model


def save_training(job: Trainee, folder: Path) -> None:
    """Save trained weights, optimiser and schedule."""
    import torch

    sharded = job.options.strategy in SHARDED
    if sharded and job.options.state_dict_type == "sharded":
        import torch.distributed.checkpoint as dcp

        dcp.save(training_state(job, full=False), checkpoint_id=str(folder / "training"))
        torch.save(job.scheduler.state_dict(), folder / f"scheduler-{job.ctx.place.rank}.pt")
        return
    state = training_state(job, full=True) if sharded else plain_state(job)
    if job.ctx.place.rank == 0:
        torch.save({**state, "scheduler": job.scheduler.state_dict()}, folder / "training.pt")


def load_training(job: Trainee, folder: Path) -> None:
    import torch

    sharded = job.options.strategy in SHARDED
    if sharded and job.options.state_dict_type == "sharded":
        import torch.distributed.checkpoint as dcp

        state = training_state(job, full=False)
        dcp.load(state, checkpoint_id=str(folder / "training"))
        set_training_state(job, state, full=False)
        job.scheduler.load_state_dict(torch.load(folder / f"scheduler-{job.ctx.place.rank}.pt", weights_only=True))
        return
    state = torch.load(folder / "training.pt", weights_only=True)
    job.scheduler.load_state_dict(state.pop("scheduler"))
    if sharded:
        set_training_state(job, state, full=True)
    else:
        job.model.load_state_dict(state["model"], strict=False)
        job.optimiser.load_state_dict(state["optimiser"])


def plain_state(job: Trainee) -> dict[str, Any]:
    trained = {name for name, p in job.model.named_parameters() if p.requires_grad}
    model = {name: tensor for name, tensor in job.model.state_dict().items() if name in trained}
    return {"model": model, "optimiser": job.optimiser.state_dict()}


def training_state(job: Trainee, *, full: bool) -> dict[str, Any]:
    if full and in_fsdp1_way(job.options):
        with whole_state(job):
            optimiser = type(job.wrapped).optim_state_dict(job.wrapped, job.optimiser)
        return {"model": model_state(job, full=True), "optimiser": optimiser}
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    optimiser = get_optimizer_state_dict(job.wrapped, job.optimiser, options=state_options(job.options, full=full))
    return {"model": model_state(job, full=full), "optimiser": optimiser}


def set_training_state(job: Trainee, state: dict[str, Any], *, full: bool) -> None:
    if full and in_fsdp1_way(job.options):
        with whole_state(job, everywhere=True):  # every rank has read the file
            job.wrapped.load_state_dict(state["model"])
            own = type(job.wrapped).optim_state_dict_to_load(
                model=job.wrapped, optim=job.optimiser, optim_state_dict=state["optimiser"]
            )
        job.optimiser.load_state_dict(own)
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_optimizer_state_dict

    wanted = StateDictOptions(full_state_dict=full)
    set_model_state_dict(job.wrapped, state["model"], options=wanted)
    set_optimizer_state_dict(job.wrapped, job.optimiser, optim_state_dict=state["optimiser"], options=wanted)


def files(own: Trajectory, ctx: Context) -> list[Check]:
    """Check that the files of ``save_pretrained`` are complete, not empty, and hold nothing twice."""
    if ctx.options.strategy in SHARDED and ctx.options.state_dict_type == "sharded":
        return []  # reading DCP's files raises if a shard is missing
    written = dict(saved_tensors(ctx.given))
    promised = adapters.promised_on_disk(ctx.options) | heads.saved_beside(ctx.options)
    expected = adapters.expected_on_disk(own.after, ctx.options)
    head = heads.tied_head(ctx.options)
    missing = sum(name not in written for name in {*expected, *promised})
    foreign = sum(name not in expected and name not in promised and name != head for name in written)
    misshapen = sum(tuple(written[name]) != tuple(expected[name].shape) for name in expected if name in written)
    promised_bytes = 4 * sum(math.prod(shape) for name, shape in written.items() if name in {*expected, *promised})
    weights = [
        path
        for path in ctx.given.iterdir()
        if path.suffix in (".safetensors", ".bin") and path.name != "training_args.bin"  # the Trainer's settings
    ]
    return [
        equal("trained parameters missing on disk", missing, 0),
        equal("parameters on disk that were not trained", foreign, 0),
        equal("parameters on disk in another shape", misshapen, 0),
        equal("tied matrix on disk a second time", head in {*written} - promised, bound=False),
        equal("weight files", len(weights), 1),
        at_most(
            "bytes on disk / bytes of the trained parameters",
            sum(path.stat().st_size for path in weights) / max(promised_bytes, 1),
            1 + HEADER_BYTES / max(promised_bytes, 1),
        ),
    ]


def saved_tensors(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the canonical names and shapes of the tensors in the weight files."""
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(str(path), framework="pt") as held:
            for name in held.keys():  # noqa: SIM118 - no mapping
                yield tiny.canonical(name), tuple(held.get_slice(name).get_shape())
