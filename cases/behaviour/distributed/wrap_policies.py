"""Which modules FSDP1's policies make units of, with which arguments; training stays that of one process.

https://docs.pytorch.org/docs/stable/fsdp.html, "auto_wrap_policy"
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharding
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import loss
from cases.behaviour.parallel.sharded_parts import GROUP
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context

# Numbers of parameters: attention 56, mlp 168 and 154, head 8.
ATTENTION, MLP = ("blocks.0.attention", "blocks.1.attention"), ("blocks.0.mlp", "blocks.1.mlp")
UP, DOWN = ("blocks.0.mlp.0", "blocks.1.mlp.0"), ("blocks.0.mlp.2", "blocks.1.mlp.2")
BLOCKS, HEAD = ("blocks.0", "blocks.1"), ("head",)


@functools.cache
def classes() -> tuple[Any, Any]:
    """The classes of the network: a block, and the whole."""
    import torch

    class WrappedBlock(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.Linear(7, 7)
            self.mlp = torch.nn.Sequential(torch.nn.Linear(7, 21), torch.nn.Tanh(), torch.nn.Linear(21, 7))

        def forward(self, inputs: Any) -> Any:
            return inputs + self.mlp(self.attention(inputs).tanh())

    class Blocks(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(WrappedBlock() for _ in range(2))
            self.head = torch.nn.Linear(7, 1)

        def forward(self, inputs: Any) -> Any:
            for block in self.blocks:
                inputs = block(inputs)
            return self.head(inputs)

    return WrappedBlock, Blocks


def blocks() -> Any:
    return networks.filled(classes()[1]())


def units(model: Any) -> dict[str, Any]:
    """The units below the root by their names in the plain network."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    found = {}
    for name, module in model.named_modules():
        if isinstance(module, FullyShardedDataParallel) and module is not model:
            found[name.replace("_fsdp_wrapped_module.", "").replace("._fsdp_wrapped_module", "")] = module
    return found


def made_of(*names: tuple[str, ...]) -> str:
    return " ".join(sorted(name for each in names for name in each))


def policies() -> Mapping[str, tuple[Any, str]]:
    """Policies with the units that they make."""
    import torch
    from torch.distributed.fsdp import wrap

    block, linear = classes()[0], torch.nn.Linear
    by_size = wrap.size_based_auto_wrap_policy
    some = functools.partial
    return {
        "class": (wrap.ModuleWrapPolicy({block}), made_of(BLOCKS)),
        "nested classes": (wrap.ModuleWrapPolicy([block, linear]), made_of(BLOCKS, ATTENTION, UP, DOWN, HEAD)),
        "layers": (some(wrap.transformer_auto_wrap_policy, transformer_layer_cls={block}), made_of(BLOCKS)),
        "function": (
            some(wrap.lambda_auto_wrap_policy, lambda_fn=lambda module: getattr(module, "out_features", 0) == 21),  # noqa: PLR2004
            made_of(UP),
        ),
        "size of 300": (some(by_size, min_num_params=300), made_of(MLP)),
        "size of 323": (some(by_size, min_num_params=323), made_of(BLOCKS)),
        "size of 150": (some(by_size, min_num_params=150), made_of(UP, DOWN)),
        "size of 154": (some(by_size, min_num_params=154), made_of(UP, DOWN)),
        "size of 155": (some(by_size, min_num_params=155), made_of(UP, BLOCKS)),
        "excluded": (
            some(by_size, min_num_params=300, exclude_wrap_modules={torch.nn.Sequential, torch.nn.ModuleList}),
            made_of(BLOCKS),
        ),
        "either": (
            some(
                wrap._or_policy,  # noqa: SLF001 - as recipes of torch combine policies
                policies=[
                    some(wrap.lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, block)),
                    some(wrap.lambda_auto_wrap_policy, lambda_fn=lambda module: module.__class__ is linear),
                ],
            ),
            made_of(BLOCKS, ATTENTION, UP, DOWN, HEAD),
        ),
    }


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=jobs.FSDP1)
def fsdp1_units_by_policy(ctx: Context) -> Iterator[Check]:
    """Each policy makes units of the classes, sizes or functions that it names, inner ones first, and trains alike."""
    expected = networks.expected_gradients(blocks(), [loss])
    for title, (policy, wanted) in policies().items():
        model = sharding.fsdp1(blocks(), ctx, auto_wrap_policy=policy, use_orig_params=True)
        yield equal(f"units, {title}", " ".join(sorted(units(model))), wanted)
        loss(model, 0, ctx).backward()
        yield networks.off(f"gradients off, {title}", sharded_networks.fsdp1_gradients(model), expected)


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=jobs.FSDP1)
def fsdp1_units_with_own_arguments(ctx: Context) -> Iterator[Check]:
    """CustomPolicy gives units arguments of their own; wrap does so within enable_wrap, and nothing outside of it."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, wrap

    block, _ = classes()

    def chosen(module: Any) -> Any:
        if isinstance(module, block):
            return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
        return getattr(module, "out_features", 0) == 1  # the head

    expected = networks.expected_gradients(blocks(), [loss])
    model = sharding.fsdp1(blocks(), ctx, auto_wrap_policy=wrap.CustomPolicy(chosen), use_orig_params=True)
    found = {name: unit.sharding_strategy.name for name, unit in units(model).items()}
    wanted = {**dict.fromkeys(BLOCKS, "SHARD_GRAD_OP"), "head": "FULL_SHARD"}
    yield equal("strategies of units", str(sorted(found.items())), str(sorted(wanted.items())))
    yield equal("strategy of the root", model.sharding_strategy.name, "FULL_SHARD")
    loss(model, 0, ctx).backward()
    yield networks.off("gradients off, own arguments", sharded_networks.fsdp1_gradients(model), expected)
    plain = blocks()
    yield equal("wrap outside of enable_wrap", wrap.wrap(plain.head) is plain.head, bound=True)
    device = torch.device("cpu") if ctx.place.kind == "cpu" else ctx.place.device
    settings = {"device_id": device, "use_orig_params": True, "sharding_strategy": ShardingStrategy.NO_SHARD}
    with wrap.enable_wrap(wrapper_cls=FullyShardedDataParallel, **settings):
        plain.head = wrap.wrap(plain.head)
        plain.blocks[0] = wrap.wrap(plain.blocks[0], sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    kinds = (plain.head.sharding_strategy.name, plain.blocks[0].sharding_strategy.name)
    yield equal("strategies within enable_wrap", str(kinds), "('NO_SHARD', 'SHARD_GRAD_OP')")
    yield equal("wrap after enable_wrap", wrap.wrap(plain.blocks[1]) is plain.blocks[1], bound=True)


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=jobs.FSDP1)
def fsdp1_policies_beside_ignored_modules(ctx: Context) -> Iterator[Check]:
    """A policy makes no unit of an ignored module, or of a module within it, and counts none of its parameters."""
    import torch
    from torch.distributed.fsdp import wrap

    by_size = functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=323)
    kinds = {"class": (wrap.ModuleWrapPolicy({torch.nn.Linear}), made_of(ATTENTION, UP[1:], DOWN[1:], HEAD))}
    kinds["size"] = (by_size, made_of(BLOCKS[1:]))
    for title, (policy, wanted) in kinds.items():
        plain = blocks()
        ignored = plain.blocks[0].mlp
        model = sharding.fsdp1(plain, ctx, auto_wrap_policy=policy, ignored_modules=[ignored], use_orig_params=True)
        yield equal(f"units, {title}", " ".join(sorted(units(model))), wanted)
        shapes = {tuple(each.shape) for each in ignored.parameters()}
        yield equal(f"shapes of ignored parameters, {title}", str(sorted(shapes)), "[(7,), (7, 21), (21,), (21, 7)]")
