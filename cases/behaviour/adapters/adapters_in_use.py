"""Several adapters on one model: which of them computes, which of them is trained, and how they are switched off."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, NEAR, SECOND, Adapter
from cases.model import tiny
from cases.reference import twin
from cases.reference.tolerance import relative, worst_tensor
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

USING = "Using adapters"
RATE = 0.5
STEP = 1e-5  # relative: gradients of float32 through two layers


@call(USING, phase=Phase.FORWARD)
def switch_adapters(ctx: Context) -> Iterator[Check]:
    """set_adapter switches the outputs and the trained weights between adapters of other ranks and targets."""
    third = Adapter(name="third", rank=2, alpha=6, targets=("k_proj", "q_proj"), more={"use_rslora": True})
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND, third).eval()
    for adapter in (FIRST, SECOND, third, FIRST):
        model.set_adapter(adapter.name)
        yield at_most("logits off", relative(reference.logits(model), base.logits(base.of(adapter))), NEAR)
        expected = base.sides(adapter.name, base.placed(adapter)).keys()
        yield equal("trained weights", reference.written(reference.trained(model) ^ expected), "none")


@call(USING, phase=Phase.ADAPT)
def add_second_adapter(ctx: Context) -> Iterator[Check]:
    """add_adapter neither activates the new adapter nor trains it."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST)
    model.add_adapter("second", SECOND.config())
    reference.fill(model).eval()
    yield at_most("logits off", relative(reference.logits(model), base.logits(base.of(FIRST))), NEAR)
    expected = base.sides("first", base.placed(FIRST)).keys()
    yield equal("trained weights", reference.written(reference.trained(model) ^ expected), "none")


@call(USING, phase=Phase.OPTIMIZER)
def train_second_adapter(ctx: Context) -> Iterator[Check]:
    """A step of the second adapter changes it by its gradient, and neither the first adapter nor the base."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    before = reference.state(model)
    model.set_adapter("second")
    descend(model)
    sides = expected_step(base, SECOND)
    found = reference.state(model)
    yield equal("changed", reference.written(reference.changed(before, found) ^ sides.keys()), "none")
    yield at_most("step off", worst_tensor(moved(before, found, sides), moved(before, sides, sides)), STEP)
    model.eval()
    expected = base.logits(base.update("second", base.placed(SECOND), sides))
    yield at_most("logits off", relative(reference.logits(model), expected), NEAR)
    model.set_adapter("first")
    yield at_most("logits of the first off", relative(reference.logits(model), base.logits(base.of(FIRST))), NEAR)


def descend(model: Any) -> None:
    """Take one step of plain gradient descent on the parameters that require a gradient."""
    import torch

    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    ids = tiny.batch(0).to(next(model.parameters()).device)
    model.train()(input_ids=ids, labels=ids).loss.backward()
    optimiser.step()
    optimiser.zero_grad()


def expected_step(base: reference.Base, adapter: Adapter, *others: Any) -> dict[str, Any]:
    """A and B of an adapter after one step of gradient descent; ``others`` are updates that are active too."""
    placed = base.placed(adapter)
    sides = {name: side.requires_grad_() for name, side in base.sides(adapter.name, placed).items()}
    found = base.logits(base.update(adapter.name, placed, sides), *others)
    twin.cross_entropy(found, tiny.batch(0)[:, 1:]).backward()
    return {name: (side - RATE * side.grad).detach() for name, side in sides.items()}


def moved(before: dict[str, Any], after: dict[str, Any], names: Any) -> dict[str, Any]:
    return {name: after[name] - before[name] for name in names}


@call(USING, phase=Phase.OPTIMIZER)
def two_active_adapters(ctx: Context) -> Iterator[Check]:
    """Two active adapters add up, and a step trains both."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    model.base_model.set_adapter(["first", "second"])
    expected = base.logits(base.of(FIRST), base.of(SECOND))
    yield at_most("logits off", relative(reference.logits(model), expected), NEAR)
    before = reference.state(model)
    descend(model)
    first = expected_step(base, FIRST, base.of(SECOND))
    sides = first | expected_step(base, SECOND, base.of(FIRST))
    found = reference.state(model)
    yield equal("changed", reference.written(reference.changed(before, found) ^ sides.keys()), "none")
    yield at_most("step off", worst_tensor(moved(before, found, sides), moved(before, sides, sides)), STEP)
    model.set_adapter("first")
    alone = base.logits(base.update("first", base.placed(FIRST), first))
    yield at_most("logits of the first off", relative(reference.logits(model.eval()), alone), NEAR)


def off_the_base(model: Any, base: Any) -> Check:
    """An adapter that is off leaves no trace: the bits of the model that never had one."""
    return at_most("logits off the base", float((reference.logits(model) - base).abs().max()), 0.0)


def disabled(ctx: Context, *adapters: Adapter, training: bool = False) -> Iterator[Check]:
    """The logits inside and after ``disable_adapter``, and what is trained afterwards."""
    plain = reference.loaded(ctx)
    expected = reference.logits(plain.train(training))
    yield at_most("logits of the base off", relative(expected, reference.read(ctx).logits()), NEAR)
    model = reference.adapted(ctx, *adapters).train(training)
    trained, state = reference.trained(model), reference.state(model)
    before = reference.logits(model.eval())
    model.train(training)
    with model.disable_adapter():
        yield off_the_base(model, expected)
    yield equal("trained weights", reference.written(reference.trained(model) ^ trained), "none")
    yield equal("changed", reference.written(reference.changed(state, reference.state(model))), "none")
    yield at_least("what the adapter does", relative(before, expected), 0.01)
    yield at_most("logits afterwards off", relative(reference.logits(model.eval()), before), 0.0)


@call(USING, phase=Phase.FORWARD)
def disable_two_adapters(ctx: Context) -> Iterator[Check]:
    """disable_adapter gives the base, as preference training needs for its reference model, and restores afterwards."""
    yield from disabled(ctx, FIRST, SECOND)


@call(USING, phase=Phase.FORWARD)
def disable_adapter_in_training(ctx: Context) -> Iterator[Check]:
    """disable_adapter gives the base in train mode too, without the adapter's dropout."""
    dropping = Adapter(name="first", rank=4, alpha=12, more={"lora_dropout": 0.5})
    yield from disabled(ctx, dropping, training=True)


@call(USING, phase=Phase.FORWARD)
def disable_saved_head(ctx: Context) -> Iterator[Check]:
    """disable_adapter uses the original of a module in modules_to_save."""
    import torch

    heads = Adapter(name="first", rank=4, alpha=12, more={"modules_to_save": ["lm_head"]})
    model, plain = reference.adapted(ctx, heads).eval(), reference.loaded(ctx).eval()
    copy = next(p for name, p in tiny.named(model) if name == "lm_head.first.weight")
    with torch.no_grad():
        copy.copy_(tiny.values("another head", tuple(copy.shape)))
    before, base = reference.logits(model), reference.logits(plain)
    with model.disable_adapter():
        yield off_the_base(model, base)
    yield at_most("logits afterwards off", relative(reference.logits(model), before), 0.0)
    yield equal("the copy is trained", copy.requires_grad, bound=True)


@call(USING, phase=Phase.FORWARD)
def disable_dora_adapter(ctx: Context) -> Iterator[Check]:
    """disable_adapter gives the base of a DoRA adapter."""
    yield from disabled(ctx, Adapter(name="first", rank=4, alpha=12, more={"use_dora": True}))


@call(USING, phase=Phase.FORWARD)
def disable_after_exception(ctx: Context) -> Iterator[Check]:
    """An exception inside disable_adapter leaves the adapter active."""
    model = reference.adapted(ctx, FIRST, SECOND).eval()
    trained, before = reference.trained(model), reference.logits(model)
    with contextlib.suppress(KeyError), model.disable_adapter():
        raise KeyError
    yield at_most("logits afterwards off", relative(reference.logits(model), before), 0.0)
    yield equal("trained weights", reference.written(reference.trained(model) ^ trained), "none")


@call(USING, phase=Phase.FORWARD)
def disable_twice(ctx: Context) -> Iterator[Check]:
    """disable_adapter inside disable_adapter leaves the adapter off until the outer one ends."""
    model, plain = reference.adapted(ctx, FIRST).eval(), reference.loaded(ctx).eval()
    before, base = reference.logits(model), reference.logits(plain)
    with model.disable_adapter():
        with model.disable_adapter():
            yield off_the_base(model, base)
        yield off_the_base(model, base)
    yield at_most("logits afterwards off", relative(reference.logits(model), before), 0.0)


@call(USING, phase=Phase.MERGE)
def disable_merged_adapter(ctx: Context) -> Iterator[Check]:
    """disable_adapter gives the base of a merged adapter, within the rounding of unmerging."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    model.merge_adapter()
    yield at_most("logits off", relative(reference.logits(model), base.logits(base.of(FIRST))), reference.MERGED)
    with model.disable_adapter():
        yield at_most("logits off the base", relative(reference.logits(model), base.logits()), reference.MERGED)
    yield at_most("logits off", relative(reference.logits(model), base.logits(base.of(FIRST))), reference.MERGED)


@call(USING, phase=Phase.FORWARD)
def switch_while_disabled(ctx: Context) -> Iterator[Check]:
    """An adapter chosen while adapters are disabled is active afterwards."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    with model.disable_adapter():
        model.set_adapter("second")
        yield at_most("logits off the base", relative(reference.logits(model), base.logits()), NEAR)
    yield at_most("logits off", relative(reference.logits(model), base.logits(base.of(SECOND))), NEAR)
    expected = base.sides("second", base.placed(SECOND)).keys()
    yield equal("trained weights", reference.written(reference.trained(model) ^ expected), "none")
