"""Layers of newer methods that draw numbers or share a vector, PVeRA, Uni-LoRA and TinyLoRA, and dropout of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import newer_methods
from cases.behaviour.adapters.methods import layers, method_dropout
from cases.behaviour.adapters.methods.layers import METHODS, NAMES, Method
from cases.behaviour.adapters.methods.method_dropout import RATE
from cases.behaviour.adapters.methods.method_merging import SAME
from cases.behaviour.starts import adapted_layers
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Newer methods"
SEED, ROWS = 5, 7
APART = 0.001  # relative: two draws, or what an adapter adds
NEAR = 1e-4  # relative: the largest singular values by a decomposition in float32


def drawing(*, seed: int | None, at_inference: bool = False) -> Any:
    """A model with one PVeRA adapter."""
    more = {"generator_seed": seed, "sample_at_inference": at_inference}
    return layers.adapted(METHODS["pvera"], names=("first",), **more)


def drawn(model: Any, name: str, given: Any, noise: Any) -> Any:
    """Outputs of a PVeRA layer by its formula: the ranks are means plus noise times standard deviations."""
    import torch

    layer = layers.module(model, name)
    parts = layers.parts(model, METHODS["pvera"], name, "first")
    (outer, inner), rows = adapted_layers.SIZES[name], given.double()
    means, variances = (parts["pvera_lambda_d"] * (rows @ parts["pvera_A"][:, :inner].T)).chunk(2, dim=-1)
    ranks = means + noise.double() * (variances / 2).exp()
    plain = layer.get_base_layer()
    with torch.no_grad():
        base = rows @ plain.weight.double().T + plain.bias.double()
    return base + parts["pvera_lambda_b"] * (ranks @ parts["pvera_B"][:outer].T)


@call(GROUP, phase=Phase.FORWARD, requires=("peft_PveraConfig",))
def pvera_draws(_ctx: Context) -> Iterator[Check]:
    """PVeRA draws its ranks in training, from a generator of its own if it has a seed; evaluation takes their means.

    sample_at_inference draws in evaluation, too. https://huggingface.co/docs/peft/package_reference/pvera
    """
    import torch

    for name, (_, inner) in adapted_layers.SIZES.items():
        given = torch.randn(ROWS, inner, generator=torch.Generator().manual_seed(1))
        for training, at_inference in ((True, False), (False, True), (False, False)):
            model = drawing(seed=SEED, at_inference=at_inference).train(training)
            title = f"{name}, training={training}, sample_at_inference={at_inference}"
            generator, found = torch.Generator().manual_seed(SEED), []
            for number in (1, 2):
                noise = torch.randn(ROWS, METHODS["pvera"].both["r"], generator=generator)
                wanted = drawn(model, name, given, noise * (training or at_inference))
                with torch.no_grad():
                    found.append(layers.module(model, name)(given).double())
                yield at_most(f"outputs off, {title}, pass {number}", relative(found[-1], wanted), SAME)
            apart = relative(found[0], found[1])
            if training or at_inference:
                yield at_least(f"two passes apart, {title}", apart, APART)
            else:
                yield at_most(f"two passes apart, {title}", apart, 0.0)
        model = drawing(seed=None).train()
        torch.manual_seed(SEED)
        with torch.no_grad():
            found = layers.module(model, name)(given).double()
        torch.manual_seed(SEED)
        wanted = drawn(model, name, given, torch.randn(ROWS, METHODS["pvera"].both["r"]))
        yield at_most(f"outputs off, {name}, by torch's own generator", relative(found, wanted), SAME)


@call(GROUP, phase=Phase.MERGE, requires=("peft_UniLoraConfig",))
def unilora_layers(ctx: Context) -> Iterator[Check]:
    """Uni-LoRA's matrices are numbers of one vector, each used equally often, also merged, unmerged and loaded.

    https://arxiv.org/abs/2506.00799
    """
    method = Method(**newer_methods.UNILORA)
    yield from of_vectors(ctx, method)
    model = layers.adapted(method)
    for name in NAMES:
        uses = newer_methods.uses_of_unilora(model.base_model, name)
        yield at_most(f"uses of a number of the {name}, apart", int(uses.max() - uses.min()), 1)


@call(GROUP, phase=Phase.MERGE, requires=("peft_TinyLoraConfig",))
def tinylora_layers(ctx: Context) -> Iterator[Check]:
    """TinyLoRA's vector weighs fixed matrices between singular vectors; weight_tying says how many vectors there are.

    https://arxiv.org/abs/2602.04118 and https://huggingface.co/docs/peft/package_reference/tinylora
    """
    import torch

    method = Method(**newer_methods.TINYLORA)
    yield from of_vectors(ctx, method)
    model = layers.adapted(method)
    for name in NAMES:
        for layer in layers.TARGETS[name]:
            fixed = newer_methods.frozen(model.base_model, layers.module(model, layer), name)
            left, values, right = torch.linalg.svd(layers.held(model)[layer][0], full_matrices=False)
            rank = method.arguments(name)["r"]
            best = left[:, :rank] * values[:rank] @ right[:rank]
            off = relative(fixed["tinylora_B"] @ fixed["tinylora_A"], best)
            yield at_most(f"singular values of {layer} off, {name}", off, NEAR)
    for tying, count in ((0.0, 2), (1.0, 1)):
        model = layers.adapted(method, names=("first",), weight_tying=tying)
        found = sum("tinylora_v" in name for name, each in model.named_parameters() if each.requires_grad)
        yield equal(f"vectors of two layers, weight_tying={tying}", found, count)


def of_vectors(ctx: Context, method: Method) -> Iterator[Check]:
    """Switch, disable, merge, unmerge and load two adapters whose vectors belong to the model."""
    from peft import PeftModel

    model = layers.adapted(method)
    plain = layers.held(adapted_layers.base())
    model.save_pretrained(ctx.kept)
    for name in NAMES:
        model.set_adapter(name)
        wanted = layers.expected(model, method, name)
        yield at_most(f"weights of the {name} off", layers.off(layers.applied(model), wanted), SAME)
        effect = layers.off(wanted, plain)
        yield at_least(f"effect of the {name}", effect, APART)
        for safe in (False, True):
            model.merge_adapter(safe_merge=safe)
            yield at_most(f"merged weights of the {name} off, {safe}", layers.off(layers.held(model), wanted), SAME)
            model.unmerge_adapter()
            yield at_most(f"unmerged weights of the {name} off, {safe}", layers.off(layers.held(model), plain), SAME)
        with model.disable_adapter():
            off = layers.off(layers.applied(model), plain)
        yield at_most(f"weights off while the {name} is disabled", off, SAME)
        again = PeftModel.from_pretrained(adapted_layers.base(), ctx.kept / name, adapter_name=name).eval()
        yield at_most(f"weights of the {name} off, loaded", layers.off(layers.applied(again), wanted), SAME)
        trained = {key for key, each in model.named_parameters() if each.requires_grad}
        others = {key for key in trained if not any(mark in key for mark in method.marks) or name not in key.split(".")}
        yield equal(f"trained beside the {name}", " ".join(sorted(others)), "")


@call(GROUP, phase=Phase.FORWARD, requires=("peft_RandLoraConfig",))
def randlora_dropout(_ctx: Context) -> Iterator[Check]:
    """RandLoRA drops single inputs of the adapter in training, and scales the others."""
    yield from method_dropout.inputs_dropped("randlora", randlora_dropout=RATE)


@call(GROUP, phase=Phase.FORWARD, requires=("peft_HiraConfig",))
def hira_dropout(_ctx: Context) -> Iterator[Check]:
    """HiRA drops single inputs of the adapter in training, and scales the others."""
    yield from method_dropout.inputs_dropped("hira", hira_dropout=RATE)


@call(GROUP, phase=Phase.FORWARD, requires=("peft_PsoftConfig",))
def psoft_dropout(_ctx: Context) -> Iterator[Check]:
    """PSOFT drops single inputs of the adapter in training, and scales the others."""
    yield from method_dropout.inputs_dropped("psoft", psoft_dropout=RATE)
