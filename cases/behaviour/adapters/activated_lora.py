"""Activated LoRA: an adapter that computes from the last occurrence of its invocation tokens on.

https://arxiv.org/abs/2504.12397: tokens before the invocation have the weights of the base, and a row without it is a
row of the base. The expected values come from the base with hooks that add the update to the outputs of these tokens.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, NEAR, SECOND, Adapter
from cases.behaviour.adapters.mixed_batches import BASE
from cases.model import tiny
from cases.reference import twin
from cases.reference.tolerance import relative, worst_tensor
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

ACTIVATING = "Activated LoRA"
NEEDS = ("activated_lora",)
INVOCATION, OTHER = [5, 6, 7], [9, 8]
STEP = 1e-5  # relative: gradients of float32 through two layers
NEW = 3  # generated tokens
PLACES = ((4,), (2, 9), (), (13,))  # where the invocation begins in each row; the last one counts, () has only a part
SHORT = ((1,), (0, 4), (), (5,))  # the same for prompts, which are half as long


def activated(adapter: Adapter, tokens: Sequence[int]) -> Adapter:
    return replace(adapter, more={"alora_invocation_tokens": list(tokens)})


ACTIVATED, LATER = activated(FIRST, INVOCATION), activated(replace(SECOND, name="later"), OTHER)


def invoking(ids: Any, places: Sequence[Sequence[int]], tokens: Sequence[int] = INVOCATION) -> Any:
    """The ids with the invocation at these places of each row, or its first tokens alone in a row without a place."""
    import torch

    ids = ids.clone()
    for row, begins in enumerate(places):
        for begin in begins:
            ids[row, begin : begin + len(tokens)] = torch.tensor(tokens)
        if not begins:
            ids[row, 2 : 1 + len(tokens)] = torch.tensor(tokens[:-1])
    return ids


@dataclass(frozen=True)
class PromptedRow:
    """The adapter of a row, and the first token that it computes."""

    adapter: Adapter
    begin: int


def by_last(adapter: Adapter, places: Sequence[Sequence[int]]) -> list[PromptedRow | None]:
    return [PromptedRow(adapter, begins[-1]) if begins else None for begins in places]


@contextlib.contextmanager
def computing(
    plain: Any, base: reference.Base, rows: Sequence[PromptedRow | None], sides: Mapping[str, Any]
) -> Iterator[None]:
    """Add each row's update to the outputs of the adapted layers, from its first token on."""
    import torch

    def hook(layer: str) -> Any:
        def add(_module: Any, given: tuple[Any, ...], found: Any) -> Any:
            added = []
            for row, inputs in zip(rows, given[0], strict=True):
                if row is None or layer not in base.placed(row.adapter):
                    added.append(torch.zeros_like(found[0]))
                    continue
                one, other = (sides[base.side(layer, side, row.adapter.name)] for side in "AB")
                update = row.adapter.scaling * inputs @ one.T @ other.T
                later = torch.arange(len(inputs), device=inputs.device) >= row.begin
                added.append(update * later[:, None])
            return found + torch.stack(added)

        return add

    names = {layer for row in rows if row for layer in base.placed(row.adapter)}
    handles = [plain.get_submodule(layer).register_forward_hook(hook(layer)) for layer in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def sides_of(base: reference.Base, device: Any, *adapters: Adapter) -> dict[str, Any]:
    found = {}
    for adapter in adapters:
        found.update(base.sides(adapter.name, base.placed(adapter)))
    return {name: side.to(device) for name, side in found.items()}


def expected(ctx: Context, ids: Any, rows: Sequence[PromptedRow | None], sides: Mapping[str, Any] | None = None) -> Any:
    """The logits of the base with the rows' updates: float64."""
    base, plain = reference.read(ctx), reference.loaded(ctx).double().eval()
    device = next(plain.parameters()).device
    adapters = [row.adapter for row in rows if row]
    sides = sides_of(base, device, *adapters) if sides is None else sides
    with computing(plain, base, rows, sides):
        return plain(input_ids=ids.to(device), use_cache=False).logits.cpu()


@call(ACTIVATING, phase=Phase.BACKWARD, requires=NEEDS)
def activated_rows(ctx: Context) -> Iterator[Check]:
    """Each row has the adapter from the last invocation on, or not at all, in evaluation, in training and gradients."""
    base, ids = reference.read(ctx), invoking(tiny.batch(0), PLACES)
    model, rows = reference.adapted(ctx, ACTIVATED, SECOND), by_last(ACTIVATED, PLACES)
    wanted = expected(ctx, ids, rows).detach()
    plain, whole = base.logits(ids=ids), base.logits(base.of(ACTIVATED), ids=ids)
    for name, other in (("the base", plain), ("the adapter in every token", whole)):
        yield at_least(f"expected logits off those of {name}", relative(wanted, other), 0.01)
    for training in (True, False):
        found = reference.logits(model.train(training), input_ids=ids)
        yield at_most(f"logits off, training={training}", relative(found, wanted), NEAR)

    device = next(model.parameters()).device
    sides = {name: side.requires_grad_() for name, side in sides_of(base, device, ACTIVATED).items()}
    twin.cross_entropy(expected(ctx, ids, rows, sides), ids[:, 1:]).backward()
    model.train()(input_ids=ids.to(device), labels=ids.to(device)).loss.backward()
    gradients = {name: p.grad.double().cpu() for name, p in tiny.named(model) if p.grad is not None}
    yield equal("trained weights", reference.written(gradients.keys() ^ sides.keys()), "none")
    yield at_most("gradients off", worst_tensor(gradients, {n: side.grad.cpu() for n, side in sides.items()}), STEP)
    model.set_adapter("second")
    found, ordinary = reference.logits(model.eval(), input_ids=ids), base.logits(base.of(SECOND), ids=ids)
    yield at_most("logits of the ordinary adapter off", relative(found, ordinary), NEAR)


MIXED_NAMES = ["first", "later", "second", BASE]
MIXED_PLACES = ((4,), (2, 9), (3,), (6,))


def mixed(ids: Any, places: Sequence[Sequence[int]]) -> tuple[Any, list[PromptedRow | None]]:
    """Rows of two activated adapters, of an ordinary one, and of none; all of them with an invocation."""
    ids, later = invoking(ids, places), invoking(ids, places, OTHER)
    ids[1] = later[1]
    return ids, [PromptedRow(ACTIVATED, places[0][-1]), PromptedRow(LATER, places[1][-1]), PromptedRow(SECOND, 0), None]


@call(ACTIVATING, phase=Phase.FORWARD, requires=NEEDS)
def activated_mixed_rows(ctx: Context) -> Iterator[Check]:
    """Rows of one batch use activated adapters with other invocations, an ordinary adapter, or none."""
    ids, rows = mixed(tiny.batch(0), MIXED_PLACES)
    model = reference.adapted(ctx, ACTIVATED, SECOND, LATER).eval()
    found = reference.logits(model, input_ids=ids, adapter_names=MIXED_NAMES)
    yield at_most("logits off", relative(found, expected(ctx, ids, rows).detach()), NEAR)


def generated(ctx: Context, ways: Mapping[str, Mapping[str, Any]]) -> Iterator[Check]:
    """Compare the logits of each generated token with those of the whole text."""
    import torch

    model = reference.adapted(ctx, ACTIVATED, SECOND, LATER).eval()
    device = next(model.parameters()).device
    ids, several = invoking(tiny.prompt(), SHORT), mixed(tiny.prompt(), ((1,), (0, 4), (2,), (3,)))
    batches = {"one adapter": (ids, by_last(ACTIVATED, SHORT), {}), "mixed": (*several, {"adapter_names": MIXED_NAMES})}
    for batch, (prompt, rows, chosen) in batches.items():
        for way, more in ways.items():
            found = model.generate(
                input_ids=prompt.to(device),
                attention_mask=torch.ones_like(prompt).to(device),
                max_new_tokens=NEW,
                do_sample=False,
                pad_token_id=tiny.PADDING,
                eos_token_id=None,
                return_dict_in_generate=True,
                output_logits=True,
                **{"use_cache": True, **more, **chosen},
            )
            wanted = expected(ctx, found.sequences.cpu(), rows).detach()[:, -NEW - 1 : -1]
            logits = torch.stack(found.logits, dim=1).cpu()
            yield at_most(f"logits off, {batch}, {way}", relative(logits, wanted), NEAR)


@call(ACTIVATING, phase=Phase.INFER, requires=NEEDS)
def activated_generation(ctx: Context) -> Iterator[Check]:
    """Generation continues a row by its adapter from the prompt's last invocation on."""
    yield from generated(ctx, {"plain": {}, "one beam": {"num_beams": 1}})


@call(ACTIVATING, phase=Phase.INFER, requires=NEEDS)
def activated_generation_without_cache(ctx: Context) -> Iterator[Check]:
    """Without a cache, generation continues a row by its adapter from the prompt's last invocation on too.

    PEFT counts the invocation's distance from the end of the prompt once. Without a cache, every pass has the whole
    text, and the same distance from its growing end leaves out one more token of the invocation each time.
    """
    yield from generated(ctx, {"no cache": {"use_cache": False}})
