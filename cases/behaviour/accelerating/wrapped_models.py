"""What accelerate wraps around models, and takes off again: autocast, DDP, placement, windows of accumulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating import states
from cases.behaviour.parallel import networks, offloading, replicating
from cases.behaviour.parallel.clipping import accelerator
from cases.reference.tolerance import UNIT_ROUNDOFF
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "accelerate: wrappers"


def outputs(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(networks.data(0)[0])


@call(GROUP, phase=Phase.WRAP)
def accelerate_unwraps_autocast(ctx: Context) -> Iterator[Check]:
    """unwrap_model(keep_fp32_wrapper=False) gives the model back with its own forward; kept, it computes in bfloat16.

    A prepared model computes in bfloat16 and returns float32.
    """
    import torch

    plain = networks.network()
    with torch.autocast(ctx.place.kind, torch.bfloat16):
        mixed = outputs(plain).float()
    exact = outputs(plain)
    made = accelerator(ctx, mixed_precision="bf16")
    for kept in (True, False):
        model = networks.network()
        own = model.forward
        prepared = made.prepare(model)
        found = outputs(prepared)
        yield equal("dtype of a prepared model's outputs", str(found.dtype), "torch.float32")
        yield equal("outputs off, prepared", offloading.differing(found, mixed), 0)
        unwrapped = made.unwrap_model(prepared, keep_fp32_wrapper=kept)
        name = f"keep_fp32_wrapper={kept}"
        yield equal(f"the same model, {name}", unwrapped is model, bound=True)
        yield equal(f"outputs off, {name}", offloading.differing(outputs(unwrapped), mixed if kept else exact), 0)
        if not kept:
            yield equal("its own forward", unwrapped.forward == own, bound=True)


@call(GROUP, phase=Phase.WRAP)
def accelerate_leaves_placement(ctx: Context) -> Iterator[Check]:
    """With device_placement=False, of the Accelerator or of the call, prepare_model moves no model.

    So a model whose weights are on the disk runs on.
    """
    import accelerate
    import torch

    wanted = offloading.outputs(offloading.model())
    for name, own, given in (("of the Accelerator", False, {}), ("of the call", True, {"device_placement": False})):
        folder = ctx.kept / str(own)
        more = {"preload_module_classes": offloading.USED}
        model = accelerate.disk_offload(offloading.model(), folder, torch.device("cpu"), **more)
        away = offloading.elsewhere(model)
        prepared = accelerator(ctx, device_placement=own).prepare_model(model, evaluation_mode=True, **given)
        yield equal(f"entries off, {name}", offloading.differing(offloading.outputs(prepared), wanted), 0)
        yield equal(f"weights away, {name}", str(offloading.elsewhere(prepared)), str(away))


@call(GROUP, phase=Phase.WRAP)
def accelerate_knows_dispatched_models(ctx: Context) -> Iterator[Check]:
    """verify_device_map says whether a model, or a part of it, has a map of more than one entry.

    prepare_model moves no such model: one on the CPU and the disk runs on, and its weights stay away.
    """
    import accelerate
    import torch

    made = states.accelerator(ctx)
    for entries in (None, 0, 1, 2, 3):
        for title, depth in (("the model", 0), ("a part", 1), ("a part of a part", 2)):
            part = torch.nn.Sequential(torch.nn.Linear(2, 2))
            if entries is not None:
                part.hf_device_map = {str(number): "cpu" for number in range(entries)}
            model = part
            for _ in range(depth):
                model = torch.nn.Sequential(torch.nn.Linear(2, 2), model)
            found = made.verify_device_map(model)
            yield equal(f"dispatched, {entries} entries on {title}", found, entries is not None and entries > 1)
    inputs = torch.linspace(-1, 1, 6).reshape(3, 2)
    for title, places in (
        ("cpu", {"": "cpu"}),
        ("cpu and disk", {"0": "cpu", "1": "disk"}),
        ("disk and cpu", {"0": "disk", "1": "cpu"}),
    ):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        with torch.no_grad():
            wanted = model(inputs)
        dispatched = accelerate.dispatch_model(model, places, offload_dir=ctx.kept / title)
        away = offloading.elsewhere(dispatched)
        yield equal(f"weights away, {title}", len(away), 2 * ("disk" in places.values()))
        prepared = states.accelerator(ctx).prepare(dispatched)
        with torch.no_grad():
            yield equal(f"entries off, {title}", offloading.differing(prepared(inputs), wanted), 0)
        yield equal(f"weights away after prepare, {title}", str(offloading.elsewhere(prepared)), str(away))


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def accelerate_no_sync_is_local(ctx: Context) -> Iterator[Check]:
    """Within accelerator.no_sync, gradients of DDP are the rank's own sums; the next pass averages over the ranks.

    accumulate does the same for all passes of a window but the last, and reports which that is. A model that is not
    wrapped has no_sync without effect.
    """
    import torch

    made = accelerator(ctx, gradient_accumulation_steps=2)
    model = made.prepare(networks.network())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    own = networks.expected_gradients(networks.network().double(), networks.losses((0,), ctx))
    both = networks.expected_gradients(networks.network().double(), networks.losses((0, 1)))
    with made.no_sync(model):
        made.backward(made.gradient_accumulation_steps * networks.loss(model, 0, ctx))
    yield networks.off("gradients within no_sync off", networks.gradients(made.unwrap_model(model)), own)
    made.backward(made.gradient_accumulation_steps * networks.loss(model, 1, ctx))
    yield networks.off("gradients after no_sync off", networks.gradients(made.unwrap_model(model)), both)
    optimiser.zero_grad()
    synchronises = []
    for step in (0, 1):
        with made.accumulate(model):
            synchronises.append(made.sync_gradients)
            made.backward(made.gradient_accumulation_steps * networks.loss(model, step, ctx))
        if step == 0:
            yield networks.off("gradients within a window off", networks.gradients(made.unwrap_model(model)), own)
    yield networks.off("gradients of a window off", networks.gradients(made.unwrap_model(model)), both)
    yield equal("passes that synchronise", str(synchronises), "[False, True]")
    plain = networks.network()
    with made.no_sync(plain):
        networks.loss(plain, 0, ctx).backward()
    yield networks.off("gradients of a plain model off", networks.gradients(plain), own)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def accelerate_accumulates_several_models(ctx: Context) -> Iterator[Check]:
    """Accumulate of two models keeps the gradients of both local within a window, and averages both at its end."""
    made = accelerator(ctx, gradient_accumulation_steps=2)
    first, second = (made.prepare(networks.network()) for _ in range(2))
    own = networks.expected_gradients(networks.network().double(), networks.losses((0,), ctx))
    both = networks.expected_gradients(networks.network().double(), networks.losses((0, 1)))
    for step, wanted in ((0, own), (1, both)):
        with made.accumulate(first, second):
            for model in (first, second):
                made.backward(made.gradient_accumulation_steps * networks.loss(model, step, ctx))
        for name, model in (("first", first), ("second", second)):
            found = networks.gradients(made.unwrap_model(model))
            yield networks.off(f"gradients of the {name} model off, pass {step}", found, wanted)


@call(GROUP, phase=Phase.WRAP, ranks=2)
def accelerate_passes_ddp_arguments(ctx: Context) -> Iterator[Check]:
    """DistributedDataParallelKwargs reach DDP: buckets, buffers, unused parameters, and a hook that compresses.

    https://huggingface.co/docs/accelerate/package_reference/kwargs
    """
    from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs

    given = {"broadcast_buffers": False, "find_unused_parameters": True, "gradient_as_bucket_view": True}
    handler = DistributedDataParallelKwargs(bucket_cap_mb=3, static_graph=False, **given)
    made = accelerator(ctx, kwargs_handlers=[handler])
    model = made.prepare(networks.network())
    for name, value in given.items():
        yield equal(name, getattr(model, name), value)
    yield equal("bytes of a bucket", model.bucket_bytes_cap, 3 * 2**20)
    hook = DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.BF16)
    made = accelerator(ctx, kwargs_handlers=[hook])
    model = made.prepare(networks.network())
    networks.loss(model, 0, ctx).backward()
    found = networks.gradients(made.unwrap_model(model))
    held = sum(int((each.bfloat16().float() != each).sum()) for each in found.values())
    yield equal("gradients that bfloat16 does not hold", held, 0)
    parts = [replicating.of_rank(rank, ctx.place.world_size) for rank in range(ctx.place.world_size)]
    errors = []
    for name, gradient in found.items():
        exact, size = (sum(map(of, (part[name].double() for part in parts))) / len(parts) for of in (lambda x: x, abs))
        errors.append(float(((gradient.double() - exact).abs() / size.clamp_min(1e-9)).max()))
    # Each rank's gradient, its division and the sum are rounded.
    yield at_most("compressed gradient entry off, in roundings", max(errors) / UNIT_ROUNDOFF["bf16"], 3.0)
