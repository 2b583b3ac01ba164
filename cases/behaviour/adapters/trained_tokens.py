"""Trained rows of embeddings, and adapters of embeddings, in models that scale or share their embeddings.

Gemma multiplies embeddings by the root of their width, and its head shares their matrix, as it is published
(https://arxiv.org/abs/2403.08295, section 2). ``trainable_token_indices`` trains rows of this matrix, for both uses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import build
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.adapters_in_use import RATE, STEP, descend
from cases.behaviour.adapters.lora_reference import FIRST, MERGED, NEAR, SECOND, Base
from cases.behaviour.adapters.mixed_batches import expected as expected_rows
from cases.behaviour.adapters.mixed_batches import mixed
from cases.model import architectures, disk, tiny
from cases.reference import twin
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.behaviour.adapters.lora_reference import Adapter
    from cases.space.options import Options
    from cases.space.verdict import Check

BESIDE = "Training beside an adapter"
TABLE = "model.embed_tokens.weight"
NEEDS = ("trainable_tokens",)
BASES = (("llama", True), ("gemma", False), ("gemma", True))  # and whether the head shares the embeddings


def options(model: str, *, tied: bool) -> Options:
    return reference.options(model).but(embeddings="tied" if tied else "untied", attn_implementation="eager")


def read(ctx: Context, model: str, *, tied: bool) -> Base:
    folder = architectures.checkpoint(options(model, tied=tied), ctx.cache)
    return Base(disk.config(folder), {name: tensor.double() for name, tensor in disk.tensors(folder).items()})


def loaded(ctx: Context, model: str, *, tied: bool) -> Any:
    chosen = options(model, tied=tied)
    return build.load_from(architectures.checkpoint(chosen, ctx.cache), chosen, ctx.place)


def adapted(plain: Any, *adapters: Adapter) -> Any:
    """A base with adapters, the first of them active; A and B have the values of their names."""
    from peft import get_peft_model

    made = get_peft_model(plain, adapters[0].config(), adapter_name=adapters[0].name)
    for adapter in adapters[1:]:
        made.add_adapter(adapter.name, adapter.config())
    made.set_adapter(adapters[0].name)
    return reference.fill(made)


def tokens() -> list[int]:
    """Tokens of the first batch, so that they have gradients."""
    return list(dict.fromkeys(tiny.batch(0)[0].tolist()))[:3]


def with_tokens(adapter: Adapter, chosen: list[int]) -> Adapter:
    return replace(adapter, more={"trainable_token_indices": {"embed_tokens": chosen}})


def tokens_alone(chosen: list[int]) -> Any:
    """The configuration of an adapter that trains these rows and nothing else."""
    from peft import TrainableTokensConfig

    return TrainableTokensConfig(token_indices=chosen, target_modules=["embed_tokens"])


def rows_of(base: Base, chosen: list[int], values: Any) -> dict[str, Any]:
    """An update of the embeddings that adds ``values`` (tokens, width) to these rows."""
    import torch

    update = torch.zeros_like(base.tensors[TABLE])
    update[chosen] = values.double()
    return {TABLE: update}


def stepped(base: Base, adapter: Adapter, chosen: list[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The updates of A and B and of the rows after one step of gradient descent."""
    placed = base.placed(adapter)
    sides = {name: side.requires_grad_() for name, side in base.sides(adapter.name, placed).items()}
    extra = (base.tensors[TABLE][chosen] * 0).requires_grad_()
    found = base.logits(base.update(adapter.name, placed, sides), rows_of_graph(base, chosen, extra))
    twin.cross_entropy(found, tiny.batch(0)[:, 1:]).backward()
    after = {name: (side - RATE * side.grad).detach() for name, side in sides.items()}
    return base.update(adapter.name, placed, after), rows_of(base, chosen, -RATE * extra.grad)


def rows_of_graph(base: Base, chosen: list[int], values: Any) -> dict[str, Any]:
    import torch

    return {TABLE: torch.zeros_like(base.tensors[TABLE]).index_add(0, torch.tensor(chosen), values)}


def trained(ctx: Context, model: str, *, tied: bool) -> Iterator[Check]:
    """Train some rows beside an adapter, switch them off, merge them, and compare all logits."""
    chosen, title = tokens(), f"{model}, {'tied' if tied else 'untied'}"
    base, adapter = read(ctx, model, tied=tied), with_tokens(FIRST, chosen)
    made = adapted(loaded(ctx, model, tied=tied), adapter)
    plain = base.logits(base.of(FIRST))
    yield at_most(f"logits off at the start, {title}", relative(reference.logits(made.eval()), plain), NEAR)
    descend(made)
    updates = stepped(base, FIRST, chosen)
    wanted = base.logits(*updates)
    yield at_least(f"what the step changes, {title}", relative(wanted, plain), 10 * STEP)
    yield at_most(f"logits off, {title}", relative(reference.logits(made.eval()), wanted), STEP)
    with made.disable_adapter():
        yield at_most(f"logits off the base, {title}", relative(reference.logits(made), base.logits()), NEAR)
    merged = made.merge_and_unload()
    yield at_most(f"merged logits off, {title}", relative(reference.logits(merged), wanted), STEP)
    shares = merged.get_input_embeddings().weight is merged.get_output_embeddings().weight
    yield equal(f"the merged head shares the embeddings, {title}", shares, tied)


@call(BESIDE, phase=Phase.OPTIMIZER, requires=NEEDS)
def train_some_tokens_tied(ctx: Context) -> Iterator[Check]:
    """trainable_token_indices trains rows of a shared matrix by the gradients of both uses, and merges both."""
    yield from trained(ctx, "llama", tied=True)


@call(BESIDE, phase=Phase.OPTIMIZER, requires=(*NEEDS, "model_gemma"))
def train_some_tokens_scaled(ctx: Context) -> Iterator[Check]:
    """trainable_token_indices trains rows of embeddings that the model scales by the root of their width, as Gemma."""
    yield from trained(ctx, "gemma", tied=False)


@call(BESIDE, phase=Phase.OPTIMIZER, requires=(*NEEDS, "model_gemma"))
def train_some_tokens_scaled_and_tied(ctx: Context) -> Iterator[Check]:
    """trainable_token_indices trains rows of Gemma's matrix, which is scaled as embeddings and not as a head."""
    yield from trained(ctx, "gemma", tied=True)


def fill_rows(model: Any, name: str) -> Any:
    """Give an adapter's rows the values of a name: (tokens, width), float32."""
    import torch

    held = [p for place, p in model.named_parameters() if "trainable_tokens_delta" in place and name in place]
    values = tiny.values(f"rows of {name}", tuple(held[0].shape))
    with torch.no_grad():
        for each in held:
            each.copy_(values)
    return values


@call(BESIDE, phase=Phase.RELOAD, requires=(*NEEDS, "model_gemma"))
def reload_trained_tokens(ctx: Context) -> Iterator[Check]:
    """Trained rows are saved without the rest of the matrix, and load into scaled and shared embeddings."""
    from peft import PeftModel
    from safetensors.torch import load_file

    chosen = tokens()
    for model, tied in BASES:
        base, title = read(ctx, model, tied=tied), f"{model}, {'tied' if tied else 'untied'}"
        made = adapted(loaded(ctx, model, tied=tied), with_tokens(FIRST, chosen))
        values = fill_rows(made, "first")
        folder = ctx.kept / title.replace(", ", "-")
        made.save_pretrained(folder)
        saved = load_file(folder / "first" / "adapter_model.safetensors")
        largest = max(len(each) for name, each in saved.items() if "embed" in name)
        yield equal(f"rows saved, {title}", largest, len(chosen))
        again = PeftModel.from_pretrained(loaded(ctx, model, tied=tied), folder / "first", adapter_name="other").eval()
        wanted = base.logits(base.of(FIRST), rows_of(base, chosen, values - base.tensors[TABLE][chosen]))
        yield at_most(f"logits off, {title}", relative(reference.logits(again), wanted), NEAR)
        merged = again.merge_and_unload()
        yield at_most(f"merged logits off, {title}", relative(reference.logits(merged), wanted), MERGED)


@call(BESIDE, phase=Phase.FORWARD, requires=(*NEEDS, "model_gemma"))
def switch_trained_tokens(ctx: Context) -> Iterator[Check]:
    """set_adapter switches between two adapters' rows of the same tokens, in scaled and shared embeddings."""
    chosen, others = tokens(), [*tokens()[:1], 40, 41]
    for model, tied in BASES:
        base, title = read(ctx, model, tied=tied), f"{model}, {'tied' if tied else 'untied'}"
        both = ((FIRST, chosen), (SECOND, others))
        made = adapted(loaded(ctx, model, tied=tied), *(with_tokens(*each) for each in both)).eval()
        values = {each.name: fill_rows(made, each.name) for each, _ in both}
        for each, indices in reversed(both):
            made.set_adapter(each.name)
            update = rows_of(base, indices, values[each.name] - base.tensors[TABLE][indices])
            wanted = base.logits(base.of(each), update)
            yield at_most(f"logits of the {each.name} off, {title}", relative(reference.logits(made), wanted), NEAR)


@call(BESIDE, phase=Phase.MERGE, requires=(*NEEDS, "model_gemma"))
def merge_tokens_of_two_adapters(ctx: Context) -> Iterator[Check]:
    """Two adapters with rows of different tokens compute together as merged: each has its own rows, and none is lost.

    Unmerged, the embeddings are those of the base again.
    """
    from peft import get_peft_model

    chosen = {"first": tokens()[:2], "second": [tokens()[2], 40]}
    for title in ("llama", "gemma"):
        base = read(ctx, title, tied=False)
        made = get_peft_model(loaded(ctx, title, tied=False), tokens_alone(chosen["first"]), adapter_name="first")
        made.add_adapter("second", tokens_alone(chosen["second"]))
        values = {name: fill_rows(made, name) for name in chosen}
        updates = [rows_of(base, rows, values[name] - base.tensors[TABLE][rows]) for name, rows in chosen.items()]
        made.base_model.set_adapter([*chosen])
        wanted = base.logits({TABLE: sum(update[TABLE] for update in updates)})
        yield at_most(f"logits off, {title}", relative(reference.logits(made.eval()), wanted), NEAR)
        made.merge_adapter()
        yield at_most(f"merged logits off, {title}", relative(reference.logits(made), wanted), MERGED)
        made.unmerge_adapter()
        with made.disable_adapter():
            yield at_most(f"logits off the base, {title}", relative(reference.logits(made), base.logits()), NEAR)


@call(BESIDE, phase=Phase.FORWARD, requires=("model_gemma",))
def lora_on_scaled_embeddings(ctx: Context) -> Iterator[Check]:
    """LoRA on Gemma's embeddings is scaled as they are: in a pass, in a mixed batch, and merged."""
    first = replace(FIRST, targets=("embed_tokens", "v_proj"))
    second = replace(SECOND, targets=("embed_tokens", "q_proj"))
    base = read(ctx, "gemma", tied=False)
    made = adapted(loaded(ctx, "gemma", tied=False), first, second).eval()
    updates = {each.name: base.of(each) for each in (first, second)}
    for name, update in updates.items():
        made.set_adapter(name)
        yield at_most(f"logits of the {name} off", relative(reference.logits(made), base.logits(update)), NEAR)
    yield at_most("logits of a mixed batch off", relative(mixed(made), expected_rows(base, updates)), NEAR)
    made.set_adapter("first")
    merged = made.merge_and_unload()
    yield at_most("merged logits off", relative(reference.logits(merged), base.logits(updates["first"])), MERGED)


@call(BESIDE, phase=Phase.FORWARD, requires=("model_gemma", "dora_of_embeddings"))
def dora_on_scaled_embeddings(ctx: Context) -> Iterator[Check]:
    """DoRA on Gemma's embeddings changes nothing at its start, and gives the logits of its merged weights."""
    import torch
    from peft import get_peft_model

    adapter = replace(FIRST, targets=("embed_tokens", "v_proj"), more={"use_dora": True})
    base = read(ctx, "gemma", tied=False)
    made = get_peft_model(loaded(ctx, "gemma", tied=False), adapter.config(), adapter_name="first").eval()
    yield at_most("logits off at the start", relative(reference.logits(made), base.logits()), NEAR)
    reference.fill(made)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_magnitude_vector" in name:
                parameter.mul_(1.25)
    found = reference.logits(made)
    yield at_least("what the adapter changes", relative(found, base.logits()), 10 * NEAR)
    yield at_most("merged logits off", relative(reference.logits(made.merge_and_unload()), found), MERGED)


@call(BESIDE, phase=Phase.FORWARD, requires=("model_gemma",))
def saved_scaled_embeddings(ctx: Context) -> Iterator[Check]:
    """A copy of Gemma's embeddings in modules_to_save is scaled as they are, and trained apart from the head."""
    import torch

    base = read(ctx, "gemma", tied=False)
    made = adapted(loaded(ctx, "gemma", tied=False), replace(FIRST, more={"modules_to_save": ["embed_tokens"]}))
    plain = base.logits(base.of(FIRST))
    yield at_most("logits off at the start", relative(reference.logits(made.eval()), plain), NEAR)
    values = tiny.values("a copy of the embeddings", tuple(base.tensors[TABLE].shape))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "embed_tokens.modules_to_save" in name:
                parameter.copy_(values)
    wanted = base.logits(base.of(FIRST), {TABLE: values.double() - base.tensors[TABLE]})
    yield at_most("logits off", relative(reference.logits(made), wanted), NEAR)
    merged = made.merge_and_unload()
    yield at_most("merged logits off", relative(reference.logits(merged), wanted), MERGED)
