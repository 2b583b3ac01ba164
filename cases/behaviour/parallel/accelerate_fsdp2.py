"""FSDP2 through accelerate with mixed precision: the dtypes of weights, computations and moments.

accelerate has no FSDP on a CPU, so the cells change the type and the plugin in accelerate's state.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharded_saving
from cases.api.loading import launched
from cases.behaviour.parallel import frozen_parts, networks
from cases.behaviour.parallel.networks import network
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "FSDP2 in a user's script"
NEEDS = (*jobs.FSDP2, "accelerate_has_fsdp2")
TINY = 1e-5  # a learning rate below the resolution of bfloat16 weights


def accelerator(ctx: Context, precision: str) -> Any:
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    known = inspect.signature(FullyShardedDataParallelPlugin).parameters
    quiet = {"sync_module_states": False, "cpu_ram_efficient_loading": False}
    chosen = {name: no for name, no in quiet.items() if name in known}
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, **chosen)
    if precision != "no":
        plugin.set_mixed_precision(precision)
    launched(ctx)
    made = Accelerator(cpu=ctx.place.kind == "cpu", mixed_precision=precision)
    made.state.distributed_type = DistributedType.FSDP
    made.state.fsdp_plugin = plugin
    return made


def stepped(ctx: Context, precision: str, dtype: str) -> tuple[Any, Any, dict[str, Any], set[str]]:
    """A model of a dtype and its Adam after one step, its weights before, and the dtypes of a layer's outputs."""
    import torch

    model = network().to(getattr(torch, dtype))
    before = {name: weight.double() for name, weight in networks.weights(model).items()}
    made = accelerator(ctx, precision)
    inside: set[str] = set()
    model.second.register_forward_hook(lambda _module, _inputs, output: inside.add(str(output.dtype)))
    wrapped, optimiser = made.prepare(model, torch.optim.Adam(model.parameters(), lr=TINY, eps=0.0))
    inputs, targets = (networks.share(each, ctx).to(getattr(torch, dtype)) for each in networks.data(0))
    made.backward((wrapped(inputs) - targets).float().square().mean())
    optimiser.step()
    return wrapped, optimiser, before, inside


def dtypes(tensors: Any) -> str:
    return str({str(each.dtype) for each in tensors})


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS)
def fsdp2_bf16_master_weights(ctx: Context) -> Iterator[Check]:
    """With mixed_precision="bf16", a bfloat16 model under FSDP2 has float32 weights and moments.

    It computes in bfloat16. The first step of Adam moves each weight by the learning rate, which bfloat16 would lose.
    """
    wrapped, optimiser, before, inside = stepped(ctx, "bf16", "bfloat16")
    after = networks.weights(wrapped)
    held = [each for state in optimiser.state_dict()["state"].values() for each in state.values() if each.dim()]
    yield equal("dtypes of parameters", dtypes(wrapped.parameters()), "{'torch.float32'}")
    yield equal("dtypes of moments", dtypes(held), "{'torch.float32'}")
    yield equal("dtypes within", str(inside), "{'torch.bfloat16'}")
    steps = [(after[name].double() - weight).abs() / TINY for name, weight in before.items()]
    yield at_most("steps off the learning rate", max(float((each - 1).abs().max()) for each in steps), 0.05)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS)
def fsdp2_without_mixed_precision(ctx: Context) -> Iterator[Check]:
    """Without mixed precision, a bfloat16 model under FSDP2 stays in bfloat16: weights, moments and computations."""
    wrapped, optimiser, _, inside = stepped(ctx, "no", "bfloat16")
    held = [each for state in optimiser.state_dict()["state"].values() for each in state.values() if each.dim()]
    yield equal("dtypes of parameters", dtypes(wrapped.parameters()), "{'torch.bfloat16'}")
    yield equal("dtypes of moments", dtypes(held), "{'torch.bfloat16'}")
    yield equal("dtypes within", str(inside), "{'torch.bfloat16'}")


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=(*NEEDS, "fsdp2_trained_in_float32"))
def fsdp2_frozen_half_weights(ctx: Context) -> Iterator[Check]:
    """With mixed precision, only trained weights of a bfloat16 model become float32 under FSDP2; frozen ones stay.

    Without it, all stay. Frozen weights get neither gradients nor moments, and a step moves trained ones alone.
    """
    import torch
    from accelerate.state import AcceleratorState

    for precision, (name, chosen) in itertools.product(("bf16", "no"), frozen_parts.FROZEN.items()):
        AcceleratorState._reset_state(reset_partial_state=False)  # noqa: SLF001 - as accelerate's own documentation does
        model = frozen_parts.freeze(network().to(torch.bfloat16), chosen)
        before = networks.weights(model)
        made = accelerator(ctx, precision)
        trained = [each for each in model.parameters() if each.requires_grad]
        wrapped, optimiser = made.prepare(model, torch.optim.Adam(trained, lr=0.01))
        held = "torch.float32" if precision == "bf16" else "torch.bfloat16"
        wanted = {each: "torch.bfloat16" if chosen(each) else held for each in before}
        title = f"{precision}, {name} frozen"
        found = {each: str(parameter.dtype) for each, parameter in tiny.named(wrapped)}
        yield equal(f"dtypes of parameters, {title}", str(found), str(wanted))
        inputs, targets = (networks.share(each, ctx).to(torch.bfloat16) for each in networks.data(0))
        made.backward((wrapped(inputs) - targets).float().square().mean())
        graded = {each for each, parameter in tiny.named(wrapped) if parameter.grad is not None}
        yield equal(
            f"parameters with gradients, {title}",
            str(sorted(graded)),
            str([n for n in sorted(before) if not chosen(n)]),
        )
        optimiser.step()
        moments = [each for state in optimiser.state_dict()["state"].values() for each in state.values() if each.dim()]
        yield equal(f"dtypes of moments, {title}", dtypes(moments), str({held}))
        after = networks.weights(wrapped)
        moved = {each for each in before if not same(after[each].float(), before[each].float())}
        yield equal(f"parameters that moved, {title}", str(sorted(moved)), str(sorted(graded)))


UNIT = 50  # parameters; the first two layers are units inside the root
# The batches of each window; only its last pass synchronises.
WINDOWS: tuple[tuple[int, ...], ...] = ((0, 1), (2,), (3, 4, 5), (6,))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=NEEDS)
def fsdp2_no_sync(ctx: Context) -> Iterator[Check]:
    """accelerator.no_sync with FSDP2 delays the reduction of all units; later passes reduce every unit again.

    A window's gradients are the sums over its batches of the mean over the ranks, also if an exception ends no_sync.
    """
    import torch
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    model = network()
    plugin = sharded_saving.plugin(model, 2)
    plugin.auto_wrap_policy, plugin.min_num_params = size_based_auto_wrap_policy, UNIT
    made = jobs.accelerator(ctx, plugin)
    wrapped, optimiser = made.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    units = [name for name, module in wrapped.named_modules() if type(module).__name__.startswith("FSDP")]
    yield equal("units", str(units), "['', 'first', 'second']")
    yield equal("is FSDP2", made.is_fsdp2, bound=True)
    for window in WINDOWS:
        optimiser.zero_grad()
        if len(window) == 1:
            with contextlib.suppress(ArithmeticError), made.no_sync(wrapped):
                raise ArithmeticError
        *delayed, last = window
        for step in delayed:
            with made.no_sync(wrapped):
                made.backward(networks.loss(wrapped, step, ctx))
            yield equal(f"reduced before the last pass of {window}", len(networks.gradients(wrapped)), 0)
        made.backward(networks.loss(wrapped, last, ctx))
        expected = networks.expected_gradients(network().double(), networks.losses(window))
        yield networks.off(f"gradients of {window} off", networks.gradients(wrapped), expected)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=NEEDS)
def fsdp2_full_adapter(ctx: Context) -> Iterator[Check]:
    """A full checkpoint of an FSDP2 model with adapter_only holds its whole tensors, and loads into shards."""
    import torch
    from accelerate.utils import fsdp_utils

    model = jobs.adapted(ctx)
    start = {tiny.canonical(name): each.detach().clone() for name, each in model.named_parameters()}
    expected = {name: each for name, each in start.items() if tiny.is_adapter(name)}
    plugin = sharded_saving.plugin(model, 2, "FULL_STATE_DICT")
    given = jobs.accelerator(ctx, plugin)
    sharded, _ = given.prepare(model, torch.optim.SGD(jobs.trained_parameters(model), lr=0.1))
    folder = ctx.kept / "adapter"
    fsdp_utils.save_fsdp_model(plugin, given, sharded, str(folder), adapter_only=True)
    torch.distributed.barrier()
    held = torch.load(next(folder.glob("*.bin")), weights_only=True)
    found = {tiny.canonical(name): tensor for name, tensor in held.items()}
    yield equal(
        "tensors saved or left out by mistake", " ".join(sorted(found.keys() ^ expected.keys())) or "none", "none"
    )
    yield equal("sharded tensors", sum(hasattr(each, "full_tensor") for each in found.values()), 0)
    wrong = [name for name in expected if name in found and not same(found[name], expected[name])]
    yield equal("tensors saved with other values", len(wrong), 0)
    with torch.no_grad():
        for name, parameter in sharded.named_parameters():
            if tiny.is_adapter(name):
                parameter.mul_(0.5)
    fsdp_utils.load_fsdp_model(plugin, given, sharded, str(folder), adapter_only=True)
    after = networks.weights(sharded)
    differ = [name for name, wanted in start.items() if not same(after[name], wanted)]
    yield equal("weights that differ after loading", len(differ), 0)


def same(one: Any, other: Any) -> bool:
    whole = one.full_tensor() if hasattr(one, "full_tensor") else one
    return whole.shape == other.shape and bool((whole.cpu() == other.cpu()).all())
