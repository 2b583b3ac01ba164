"""Trained copies of modules, trained rows of embeddings, and trained biases beside an adapter.

``modules_to_save`` trains a copy of a whole module, ``trainable_token_indices`` rows of the embeddings, ``bias`` the
biases of the base (https://huggingface.co/docs/peft/package_reference/lora#peft.LoraConfig).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.adapters_in_use import RATE, STEP, descend, moved
from cases.behaviour.adapters.lora_reference import FIRST, MERGED, NEAR, SECOND
from cases.model import tiny
from cases.reference import twin
from cases.reference.tolerance import relative, worst_tensor
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.behaviour.adapters.lora_reference import Adapter
    from cases.space.verdict import Check

BESIDE = "Training beside an adapter"
HEAD = "lm_head.weight"


def with_head(adapter: Adapter) -> Adapter:
    return replace(adapter, more={"modules_to_save": ["lm_head"]})


def own_head(base: reference.Base, name: str) -> Any:
    """The values of an adapter's copy of the head."""
    return tiny.values(f"lm_head.{name}.weight", tuple(base.tensors[HEAD].shape)).double()


def fill_heads(model: Any, *names: str) -> None:
    import torch

    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if name in {f"lm_head.{each}.weight" for each in names}:
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))


def head_update(base: reference.Base, name: str) -> dict[str, Any]:
    return {HEAD: own_head(base, name) - base.tensors[HEAD]}


def expected_step(base: reference.Base, adapter: Adapter, added: dict[str, Any]) -> dict[str, Any]:
    """A, B and ``added``, what is trained of the base's tensors, after one step of gradient descent."""
    placed = base.placed(adapter)
    sides = {name: side.requires_grad_() for name, side in base.sides(adapter.name, placed).items()}
    extra = {name: value.clone().requires_grad_() for name, value in added.items()}
    found = base.logits(base.update(adapter.name, placed, sides), extra)
    twin.cross_entropy(found, tiny.batch(0)[:, 1:]).backward()
    return {name: (value - RATE * value.grad).detach() for name, value in (sides | extra).items()}


@call(BESIDE, phase=Phase.OPTIMIZER)
def train_saved_module(ctx: Context) -> Iterator[Check]:
    """A step trains the copy of a module in modules_to_save by its gradient, and the base keeps its module."""
    base, model = reference.read(ctx), reference.adapted(ctx, with_head(FIRST), SECOND)
    before = reference.state(model)
    yield equal(
        "the copy starts as the module", before["lm_head.first.weight"].double().equal(base.tensors[HEAD]), bound=True
    )
    descend(model)
    after = reference.state(model)
    zero = {HEAD: base.tensors[HEAD] * 0}
    expected = expected_step(base, FIRST, zero)
    names = (expected.keys() - zero.keys()) | {"lm_head.first.weight"}
    yield equal("changed", reference.written(reference.changed(before, after) ^ names), "none")
    found = {HEAD: after["lm_head.first.weight"] - before["lm_head.first.weight"]}
    yield at_most("step of the copy off", worst_tensor(found, {HEAD: expected[HEAD]}), STEP)
    sides = {name: value for name, value in expected.items() if name != HEAD}
    yield at_most("step off", worst_tensor(moved(before, after, sides), moved(before, sides, sides)), STEP)
    model.set_adapter("second")
    yield at_most(
        "logits of the second off", relative(reference.logits(model.eval()), base.logits(base.of(SECOND))), NEAR
    )
    merged = model.unload()
    yield at_most("logits off the base", relative(reference.logits(merged), base.logits()), NEAR)


@call(BESIDE, phase=Phase.FORWARD)
def switch_saved_modules(ctx: Context) -> Iterator[Check]:
    """set_adapter switches between the adapters' copies of a module, in outputs and training."""
    third = replace(FIRST, name="third", targets=("k_proj",))
    base, model = reference.read(ctx), reference.adapted(ctx, with_head(FIRST), with_head(SECOND), third).eval()
    fill_heads(model, "first", "second")
    for adapter in (SECOND, FIRST, third):
        model.set_adapter(adapter.name)
        has_head = adapter is not third
        update = base.logits(base.of(adapter), head_update(base, adapter.name) if has_head else {})
        yield at_most("logits off", relative(reference.logits(model), update), NEAR)
        copies = {f"lm_head.{adapter.name}.weight"} if has_head else set()
        expected = base.sides(adapter.name, base.placed(adapter)).keys() | copies
        yield equal("trained weights", reference.written(reference.trained(model) ^ expected), "none")


@call(BESIDE, phase=Phase.RELOAD)
def reload_saved_modules(ctx: Context) -> Iterator[Check]:
    """Copies of modules are saved with their adapters and loaded under another name."""
    from peft import PeftModel

    base, model = reference.read(ctx), reference.adapted(ctx, with_head(FIRST), with_head(SECOND))
    fill_heads(model, "first", "second")
    model.save_pretrained(ctx.kept / "saved")
    loaded = PeftModel.from_pretrained(reference.loaded(ctx), ctx.kept / "saved" / "second", adapter_name="one")
    loaded.load_adapter(ctx.kept / "saved" / "first", adapter_name="other")
    for name, adapter in (("one", SECOND), ("other", FIRST)):
        loaded.set_adapter(name)
        expected = base.logits(base.of(adapter), head_update(base, adapter.name))
        yield at_most("logits off", relative(reference.logits(loaded.eval()), expected), NEAR)
    merged = loaded.merge_and_unload()
    yield at_most("merged logits off", relative(reference.logits(merged), expected), MERGED)


@call(BESIDE, phase=Phase.OPTIMIZER, requires=("trainable_tokens",))
def train_some_tokens(ctx: Context) -> Iterator[Check]:
    """trainable_token_indices trains these rows of the embeddings by their gradients, and no other."""
    import torch

    tokens = list(dict.fromkeys(tiny.batch(0)[0].tolist()))[:3]  # in the batch, so that they have gradients
    chosen = replace(FIRST, more={"trainable_token_indices": {"embed_tokens": tokens}})
    base, model = reference.read(ctx), reference.adapted(ctx, chosen)
    table = "model.embed_tokens.weight"
    ids = torch.tensor(tokens * 4).view(1, -1)
    plain = base.logits(base.of(FIRST), ids=ids)
    yield at_most("logits off at the start", relative(reference.logits(model.eval(), input_ids=ids), plain), NEAR)
    before = reference.state(model)
    descend(model)
    expected = expected_step(base, FIRST, {table: base.tensors[table] * 0})
    step = torch.zeros_like(expected[table])
    step[tokens] = expected.pop(table)[tokens]
    after = reference.state(model)
    changed = reference.changed(before, after) ^ expected.keys()
    yield equal("weights changed beside A and B", len(changed), 1)
    yield equal("of the base", reference.written(changed & base.tensors.keys()), "none")
    updates = (base.update("first", base.placed(FIRST), expected), {table: step})
    for each in (tiny.batch(0), ids):
        wanted = base.logits(*updates, ids=each)
        yield at_most("logits off", relative(reference.logits(model.eval(), input_ids=each), wanted), STEP)
    with model.disable_adapter():
        yield at_most(
            "logits off the base", relative(reference.logits(model, input_ids=ids), base.logits(ids=ids)), NEAR
        )
    merged = model.merge_and_unload()
    found = dict(merged.named_parameters())[table].detach().cpu()
    yield at_most("merged rows off", relative(found, base.tensors[table] + step), NEAR)
    yield at_most(
        "merged logits off", relative(reference.logits(merged, input_ids=ids), base.logits(*updates, ids=ids)), STEP
    )


@call(BESIDE, phase=Phase.ADAPT)
def all_linear_beside_saved_module(ctx: Context) -> Iterator[Check]:
    """With modules_to_save=["mlp"], target_modules="all-linear" adapts no layer of an MLP, which is trained whole."""
    adapter = replace(FIRST, more={"target_modules": "all-linear", "modules_to_save": ["mlp"]})
    base, model = reference.read(ctx), reference.adapted(ctx, adapter)
    found = {name.partition(".lora_A.")[0] for name in reference.trained(model) if ".lora_A." in name}
    wanted = base.layers(("q_proj", "k_proj", "v_proj", "o_proj"))
    yield equal("layers adapted or left out by mistake", reference.written(found ^ {*wanted}), "none")


def biased(ctx: Context, bias: str, ends: tuple[str, ...]) -> Iterator[Check]:
    """Train the biases of layers with these last names, and compare their step with the reference's."""
    from peft import PeftModel

    adapter = replace(FIRST, targets=("q_proj",), more={"bias": bias})
    base, model = reference.read(ctx, "qwen"), reference.adapted(ctx, adapter, model="qwen")
    biases = {f"{layer}.bias" for layer in base.layers(ends)}
    before = reference.state(model)
    descend(model)
    after = reference.state(model)
    expected = expected_step(base, adapter, {name: base.tensors[name] * 0 for name in biases})
    yield equal("changed", reference.written(reference.changed(before, after) ^ expected.keys()), "none")
    sides = {name: value - (before[name] if name not in biases else 0) for name, value in expected.items()}
    yield at_most("step off", worst_tensor(moved(before, after, expected), sides), STEP)
    model.save_pretrained(ctx.kept / "saved")
    loaded = PeftModel.from_pretrained(reference.loaded(ctx, "qwen"), ctx.kept / "saved" / "first")
    yield at_most(
        "reloaded logits off", relative(reference.logits(loaded.eval()), reference.logits(model.eval())), NEAR
    )


@call(BESIDE, phase=Phase.OPTIMIZER)
def train_biases_of_adapted_layers(ctx: Context) -> Iterator[Check]:
    """bias="lora_only" trains and saves the biases of the adapted layers, and no others."""
    yield from biased(ctx, "lora_only", ("q_proj",))


@call(BESIDE, phase=Phase.OPTIMIZER)
def train_all_biases(ctx: Context) -> Iterator[Check]:
    """bias="all" trains and saves every bias of the base."""
    yield from biased(ctx, "all", ("q_proj", "k_proj", "v_proj"))
