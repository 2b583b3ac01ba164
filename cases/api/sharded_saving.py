"""Saving, loading and merging under FSDP in user scripts."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.api.jobs import FSDP1, FSDP2
from cases.api.sharding import ADAPTER, decoder_policy, wait
from cases.apply import compat
from cases.checks import observers
from cases.model import tiny
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

SAVING = "Saving sharded models in a user's script"


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP1)
def fsdp1_save_pretrained_of_layers(ctx: Context) -> Iterator[Check]:
    """save_pretrained of an adapter by all ranks under FSDP1, decoder layers wrapped, writes whole tensors."""
    yield from saved_in_shards(ctx, strategy="fsdp1")


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP1)
def fsdp1_save_pretrained_of_one_unit(ctx: Context) -> Iterator[Check]:
    """save_pretrained of an adapter by all ranks under FSDP1, the model in one unit, writes whole tensors."""
    yield from saved_in_shards(ctx, strategy="fsdp1", auto_wrap_policy="none")


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP1)
def fsdp1_save_pretrained_on_rank_0(ctx: Context) -> Iterator[Check]:
    """save_pretrained of an adapter by rank 0 alone under FSDP1, decoder layers wrapped, can be reloaded."""
    yield from saved_in_shards(ctx, on_all=False, strategy="fsdp1")


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP2)
def fsdp2_save_pretrained_of_shards(ctx: Context) -> Iterator[Check]:
    """save_pretrained of an adapter by all ranks under FSDP2 writes whole tensors."""
    yield from saved_in_shards(ctx, strategy="fsdp2")


def saved_in_shards(ctx: Context, *, on_all: bool = True, **chosen: Any) -> Iterator[Check]:
    from safetensors.torch import load_file

    model = jobs.adapted(ctx)
    expected = {name: observers.raw(p) for name, p in tiny.named(model) if p.requires_grad}
    jobs.wrapped(ctx, model, **chosen)
    if on_all or ctx.place.rank == 0:
        model.save_pretrained(ctx.kept, is_main_process=ctx.place.rank == 0)
    wait()
    written = {tiny.canonical(n): t for n, t in load_file(ctx.kept / "adapter_model.safetensors").items()}
    yield equal("tensors missing", len(expected.keys() - written.keys()), 0)
    misshapen = sum(written[name].shape != tensor.shape for name, tensor in expected.items() if name in written)
    yield equal("tensors in another shape", misshapen, 0)


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP1)
def fsdp1_state_dict_without_frozen(ctx: Context) -> Iterator[Check]:
    """A full state dict of FSDP1 that ignores frozen parameters holds the adapter, and nothing else."""
    yield from without_frozen(ctx, "fsdp1")


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP2)
def fsdp2_state_dict_without_frozen(ctx: Context) -> Iterator[Check]:
    """A full state dict of FSDP2 that ignores frozen parameters holds the adapter, and nothing else."""
    yield from without_frozen(ctx, "fsdp2")


def without_frozen(ctx: Context, strategy: str) -> Iterator[Check]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    model = jobs.adapted(ctx)
    expected = {name: observers.raw(p) for name, p in tiny.named(model) if p.requires_grad}
    sharded = jobs.wrapped(ctx, model, strategy=strategy)
    wanted = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    held = get_model_state_dict(sharded, options=wanted)
    if ctx.place.rank > 0:
        return
    found = {tiny.canonical(name): tensor for name, tensor in held.items()}
    yield equal("tensors", "+".join(sorted(found.keys() ^ expected.keys()))[:200], "")
    differ = sum(not same(found[name], tensor) for name, tensor in expected.items() if name in found)
    yield equal("tensors that differ", differ, 0)


def same(found: Any, expected: Any) -> bool:
    return bool(found.shape == expected.shape and observers.digest(observers.raw(found)) == observers.digest(expected))


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP2)
def fsdp2_state_dict_after_unfreezing_adapter(ctx: Context) -> Iterator[Check]:
    """Ignoring frozen parameters uses their present state: a temporarily trainable adapter is saved."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    model = jobs.adapted(ctx)
    for parameter in model.parameters():
        parameter.requires_grad_(requires_grad=True)
    sharded = jobs.wrapped(ctx, model, strategy="fsdp2")
    for name, parameter in sharded.named_parameters():
        parameter.requires_grad_(tiny.is_adapter(name))
    wanted = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    held = get_model_state_dict(sharded, options=wanted)
    if ctx.place.rank == 0:
        yield equal("tensors of the adapter", sum(map(tiny.is_adapter, held)), ADAPTER)
        yield equal("tensors of the base", sum(not tiny.is_adapter(name) for name in held), 0)


@call(SAVING, phase=Phase.RELOAD, ranks=2, requires=FSDP2)
def fsdp2_adapter_loaded_into_shards(ctx: Context) -> Iterator[Check]:
    """set_peft_model_state_dict loads an adapter file into a sharded model."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    model = jobs.adapted(ctx)
    held = {name: 2 * tensor.detach().clone() for name, tensor in get_peft_model_state_dict(model).items()}
    expected = {name: 2 * observers.raw(p) for name, p in tiny.named(model) if p.requires_grad}
    sharded = jobs.wrapped(ctx, model, strategy="fsdp2")
    set_peft_model_state_dict(sharded, held)
    found = observers.weights(sharded, Options().but(strategy="fsdp2"))
    yield equal("tensors that differ", sum(not same(found[name], each) for name, each in expected.items()), 0)


@call(SAVING, phase=Phase.RELOAD, ranks=2, requires=FSDP2)
def fsdp2_load_adapter_into_shards(ctx: Context) -> Iterator[Check]:
    """load_adapter loads a second adapter into a sharded model."""
    model = jobs.adapted(ctx)
    if ctx.place.rank == 0:
        model.save_pretrained(ctx.kept)
    wait()
    sharded = jobs.wrapped(ctx, model, strategy="fsdp2")
    sharded.load_adapter(ctx.kept, adapter_name="again")
    sharded.set_adapter("again")
    jobs.loss(sharded, ctx).backward()
    yield equal("active adapter", sharded.active_adapter, "again")


@call(SAVING, phase=Phase.MERGE, ranks=2, requires=FSDP1)
def fsdp1_merge_while_sharded(ctx: Context) -> Iterator[Check]:
    """merge_adapter on a model under FSDP1, without summoning its parameters, merges."""
    yield from merged_while_sharded(ctx, "fsdp1")


@call(SAVING, phase=Phase.MERGE, ranks=2, requires=FSDP2)
def fsdp2_merge_while_sharded(ctx: Context) -> Iterator[Check]:
    """merge_adapter on a model under FSDP2, without gathering its parameters, merges."""
    yield from merged_while_sharded(ctx, "fsdp2")


def merged_while_sharded(ctx: Context, strategy: str) -> Iterator[Check]:
    import torch

    model = jobs.adapted(ctx)
    ids = tiny.batch(0).to(ctx.place.device)
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        sharded = jobs.wrapped(ctx, model, strategy=strategy)
        model.merge_adapter()
        found = sharded(input_ids=ids).logits
    weight = observers.weights(sharded, Options().but(strategy=strategy))["model.layers.0.self_attn.q_proj.weight"]
    start = tiny.values("model.layers.0.self_attn.q_proj.weight", tuple(weight.shape))
    yield equal("weights merged", bool((weight != start).any()), bound=True)
    yield at_most("merged logits off", tolerance.relative(observers.whole(found), observers.whole(expected)), jobs.SAME)


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP1)
def fsdp1_accelerate_model_of_adapter(ctx: Context) -> Iterator[Check]:
    """Accelerate's sharded checkpoint of an FSDP1 model holds the adapter without the frozen base."""
    from accelerate.utils import fsdp_utils
    from torch.distributed.checkpoint import FileSystemReader

    sharded = jobs.wrapped(ctx, strategy="fsdp1")
    wanted = plugin(sharded, 1, "SHARDED_STATE_DICT")
    given = jobs.accelerator(ctx, wanted)
    known = "adapter_only" in inspect.signature(fsdp_utils.save_fsdp_model).parameters
    only = {"adapter_only": True} if known else {}
    fsdp_utils.save_fsdp_model(wanted, given, sharded, str(ctx.kept), **only)
    wait()
    held = FileSystemReader(str(next(ctx.kept.iterdir()))).read_metadata().state_dict_metadata
    yield equal("tensors of the adapter", sum(map(tiny.is_adapter, held)), ADAPTER)
    yield equal("tensors of the base", sum(not tiny.is_adapter(name) for name in held), 0)


def plugin(model: Any, version: int, state_dict: str = "FULL_STATE_DICT") -> Any:
    """Accelerate's FSDP plugin, as its configuration would make it; the model is there on every rank."""
    from accelerate import FullyShardedDataParallelPlugin
    from torch.distributed.fsdp import StateDictType

    known = inspect.signature(FullyShardedDataParallelPlugin).parameters
    wanted = {
        "auto_wrap_policy": decoder_policy(model),
        "state_dict_type": StateDictType[state_dict],
        "sync_module_states": False,
        "cpu_ram_efficient_loading": False,
        "fsdp_version": version,
        **({"use_orig_params": True} if version == 1 else {}),
    }
    return FullyShardedDataParallelPlugin(**{name: value for name, value in wanted.items() if name in known})


@call(SAVING, phase=Phase.SAVE, ranks=2, requires=FSDP1)
def fsdp1_accelerate_state_dict(ctx: Context) -> Iterator[Check]:
    """Accelerate's get_state_dict of an FSDP1 model, which Trainer saves, holds whole tensors of the model's shapes."""
    model = jobs.base(ctx)
    expected = {name: tuple(parameter.shape) for name, parameter in tiny.named(model)}
    sharded = jobs.wrapped(ctx, model, strategy="fsdp1", method="full")
    given = jobs.accelerator(ctx, plugin(sharded, 1))
    held = given.get_state_dict(sharded)
    if ctx.place.rank == 0:
        found = {tiny.canonical(name): tuple(tensor.shape) for name, tensor in held.items()}
        yield equal("tensors missing", len(expected.keys() - found.keys()), 0)
        misshapen = sum(found[name] != shape for name, shape in expected.items() if name in found)
        yield equal("tensors in another shape", misshapen, 0)


@call(SAVING, phase=Phase.RESUME, ranks=2, requires=FSDP2)
def fsdp2_accelerate_sharded_state(ctx: Context) -> Iterator[Check]:
    """Accelerate resumes an FSDP2 job from a sharded checkpoint: save_state, load_state."""
    yield from saved_state(ctx, "SHARDED_STATE_DICT")


@call(SAVING, phase=Phase.RESUME, ranks=2, requires=FSDP2)
def fsdp2_accelerate_full_state(ctx: Context) -> Iterator[Check]:
    """Accelerate resumes an FSDP2 job from a full checkpoint: save_state, load_state."""
    yield from saved_state(ctx, "FULL_STATE_DICT")


@call(SAVING, phase=Phase.RESUME, ranks=2, requires=FSDP2)
def fsdp2_accelerate_folder_named_optimizer(ctx: Context) -> Iterator[Check]:
    """Accelerate resumes an FSDP2 job from a sharded checkpoint below a folder whose name has 'optimizer' in it."""
    yield from saved_state(ctx, "SHARDED_STATE_DICT", "optimizer-study/state")


def saved_state(ctx: Context, state_dict: str, folder: str = "state") -> Iterator[Check]:
    import torch

    compat.fully_shard()
    model = jobs.adapted(ctx)
    given = jobs.accelerator(ctx, plugin(model, 2, state_dict))
    sharded, optimiser = given.prepare(model, torch.optim.AdamW(jobs.trained_parameters(model), lr=1e-2))
    jobs.step(sharded, ctx, optimiser)
    given.save_state(str(ctx.kept / folder))
    jobs.step(sharded, ctx, optimiser, 1)
    expected = observers.weights(sharded, Options().but(strategy="fsdp2"))
    given.load_state(str(ctx.kept / folder))
    jobs.step(sharded, ctx, optimiser, 1)
    found = observers.weights(sharded, Options().but(strategy="fsdp2"))
    yield equal("weights that differ after the step again", sum(not same(found[n], t) for n, t in expected.items()), 0)


@call(SAVING, phase=Phase.RESUME)
def dcp_numbers_beside_tensors(ctx: Context) -> Iterator[Check]:
    """torch.distributed.checkpoint.load restores a learning rate as well as the moments."""
    import torch.distributed.checkpoint as dcp

    saved_with_numbers(ctx)
    found = a_state(tiny.values("fresh", (8,)), rate=1.0)
    dcp.load(found, checkpoint_id=str(ctx.kept / "state"))
    yield from given_back(found)


@call(SAVING, phase=Phase.RESUME)
def dcp_numbers_into_stateful(ctx: Context) -> Iterator[Check]:
    """torch.distributed.checkpoint.load restores an object with state_dict and load_state_dict."""
    import torch.distributed.checkpoint as dcp

    class Optimiser:
        held = a_state(tiny.values("fresh", (8,)), rate=1.0)["optimiser"]

        def state_dict(self) -> Any:
            return self.held

        def load_state_dict(self, given: dict[str, Any]) -> None:
            self.held = given

    saved_with_numbers(ctx)
    optimiser = Optimiser()
    dcp.load({"optimiser": optimiser}, checkpoint_id=str(ctx.kept / "state"))
    yield from given_back({"optimiser": optimiser.held})


def a_state(moments: Any, *, rate: float) -> dict[str, Any]:
    """An optimizer state dict in the form of ``get_optimizer_state_dict``."""
    groups = [{"params": ["weight"], "lr": rate, "weight_decay": rate}]
    return {"optimiser": {"state": {"weight": {"exp_avg": moments}}, "param_groups": groups}}


def saved_with_numbers(ctx: Context) -> None:
    import torch.distributed.checkpoint as dcp

    dcp.save(a_state(tiny.values("saved", (8,)), rate=0.5), checkpoint_id=str(ctx.kept / "state"))


def given_back(found: dict[str, Any]) -> Iterator[Check]:
    moments = found["optimiser"]["state"]["weight"]["exp_avg"]
    yield equal("moments given back", same(moments, tiny.values("saved", (8,))), bound=True)
    (group,) = found["optimiser"]["param_groups"]
    yield equal("learning rate given back", group["lr"], 0.5)
    yield equal("weight decay given back", group["weight_decay"], 0.5)
