"""OSF, Lily and Super-Tuning: adapters of singular vectors, of parts that layers share, and of chosen numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.adapters import newer_methods
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS, NAMES, Method
from cases.behaviour.adapters.methods.method_merging import SAME
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative, worst
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Newer methods"
NEAR = 1e-4  # relative: projections onto singular vectors by a decomposition in float32
WIDTH, RANK, SCALING, STRIDE, MIXED, DEPTH = 24, 5, 0.5, 2, 3, 4


def osf(*names: str) -> Any:
    return layers.adapted(Method(**newer_methods.OSF), names=names)


@call(GROUP, phase=Phase.MERGE, requires=("peft_OSFConfig",))
def osf_layers(ctx: Context) -> Iterator[Check]:
    """OSF trains the smallest singular values and their vectors, also loaded, merged and unloaded.

    https://arxiv.org/abs/2504.07097
    """
    from peft import PeftModel

    method, plain = Method(**newer_methods.OSF), layers.held(adapted_layers.base())
    model = osf(*NAMES)
    model.save_pretrained(ctx.kept)
    for name in NAMES:
        model.set_adapter(name)
        wanted = layers.expected(model, method, name)
        yield at_most(f"weights of the {name} off", layers.off(layers.applied(model), wanted), SAME)
        with model.disable_adapter():
            off = layers.off(layers.applied(model), plain)
        yield at_most(f"weights off while the {name} is disabled", off, SAME)
        again = PeftModel.from_pretrained(adapted_layers.base(), ctx.kept / name, adapter_name=name).eval()
        yield at_most(f"weights of the {name} off, loaded", layers.off(layers.applied(again), wanted), SAME)
        for safe in (False, True):
            merged = osf(*NAMES)
            merged.set_adapter(name)
            merged.merge_adapter(safe_merge=safe)
            yield at_most(f"merged weights of the {name} off, {safe}", layers.off(layers.held(merged), wanted), SAME)
        other = osf(*NAMES)
        other.set_adapter(name)
        unloaded = other.merge_and_unload()
        yield at_most(f"unloaded weights of the {name} off", layers.off(layers.held(unloaded), wanted), SAME)
    yield equal("refused: unmerging", refusal(osf("first").unmerge_adapter), "NotImplementedError")


@call(GROUP, phase=Phase.BACKWARD, requires=("peft_OSFConfig",))
def osf_gradients(_ctx: Context) -> Iterator[Check]:
    """OSF's gradients have nothing along the largest singular vectors, so that a step leaves these alone.

    https://arxiv.org/abs/2504.07097, section 3
    """
    import torch

    method, model = Method(**newer_methods.OSF), osf("first").train()
    kept = method.first["effective_rank"]
    for name, (weight, bias) in layers.held(adapted_layers.base()).items():
        given = tiny.values(f"inputs of {name}", (7, weight.shape[1]))
        layers.module(model, name)(given).square().sum().backward()
        pieces = {key: each.requires_grad_() for key, each in layers.parts(model, method, name, "first").items()}
        found = method.formula(weight, bias, pieces, method.first)[0]
        (given.double() @ found.T + bias).square().sum().backward()
        left, _, right = torch.linalg.svd(weight.float(), full_matrices=False)
        along = {"U": left[:, :kept].double(), "V": right[:kept].double()}
        held = layers.module(model, name).osf_svd_params["first"]
        for part in "USV":
            wanted = pieces[f"osf_svd_params_{part}_low"].grad
            if part == "U":
                wanted = wanted - along["U"] @ (along["U"].T @ wanted)
            if part == "V":
                wanted = wanted - wanted @ along["V"].T @ along["V"]
            yield at_most(f"gradient of {part} off, {name}", relative(held[f"{part}_low"].grad, wanted), NEAR)


@call(GROUP, phase=Phase.MERGE, requires=("peft_OSFConfig",))
def disable_merged_osf(_ctx: Context) -> Iterator[Check]:
    """disable_adapter gives the base of a merged OSF adapter, as of others, or refuses to."""
    model = osf("first")
    model.merge_adapter()
    plain = layers.held(adapted_layers.base())
    try:
        with model.disable_adapter():
            off = layers.off(layers.applied(model), plain)
    except NotImplementedError:
        off = 0.0
    yield at_most("weights off while the merged one is disabled", off, SAME)


@call(GROUP, phase=Phase.MERGE, requires=("peft_OSFConfig",))
def merge_osf_twice(_ctx: Context) -> Iterator[Check]:
    """Merging an OSF adapter that is merged already changes nothing, as with others."""
    method, model = Method(**newer_methods.OSF), osf("first")
    wanted = layers.expected(model, method, "first")
    model.merge_adapter()
    model.merge_adapter()
    yield at_most("weights off, merged twice", layers.off(layers.held(model), wanted), SAME)
    unloaded = model.merge_and_unload()
    yield at_most("weights off, merged and unloaded", layers.off(layers.held(unloaded), wanted), SAME)


@call(GROUP, phase=Phase.ADAPT, requires=("peft_SupertuningConfig",))
def supertuning_support(_ctx: Context) -> Iterator[Check]:
    """Super-Tuning trains the share of a weight's numbers that is largest, or smallest, by magnitude.

    https://arxiv.org/abs/2607.09287
    """
    method = METHODS["supertuning"]
    model = layers.adapted(method)
    for name in NAMES:
        for layer in layers.TARGETS[name]:
            weight = layers.held(model)[layer][0].abs().flatten()
            arguments = method.arguments(name)
            count = int(len(weight) * (1 - arguments["sparsity"]))
            order = weight.sort(descending=arguments.get("select_top", True)).values
            found = layers.module(model, layer).supertuning_indices[name].long()
            yield equal(f"places, {layer}, {name}", len(found.unique()), count)
            chosen = weight[found].sort(descending=arguments.get("select_top", True)).values
            wrong = int((chosen != order[:count]).sum()) if len(found) == count else len(found)
            yield equal(f"numbers chosen wrongly by size, {layer}, {name}", wrong, 0)


def blocks() -> Any:
    """A model of layers one after another, each with the values that belong to its name."""
    import torch

    made = torch.nn.Sequential(*(torch.nn.ModuleDict({"proj": torch.nn.Linear(WIDTH, WIDTH)}) for _ in range(DEPTH)))
    tiny.fill(made)
    return made


@call(GROUP, phase=Phase.FORWARD, requires=("peft_LilyConfig",))
def lily_layers(ctx: Context) -> Iterator[Check]:
    """Lily's layers share A with their neighbours and a bank of B with all, mixed by the mean of a router's shares.

    https://arxiv.org/abs/2407.09946 and https://huggingface.co/docs/peft/package_reference/lily
    """
    import peft
    import torch

    settings = {"r": RANK, "stride_A": STRIDE, "num_B": MIXED, "scaling": SCALING, "target_modules": ["proj"]}
    model = peft.get_peft_model(blocks(), peft.LilyConfig(**settings))
    count = (DEPTH // STRIDE) * RANK * WIDTH + MIXED * RANK * WIDTH + DEPTH * MIXED * RANK
    yield equal("trained numbers", int(model.get_nb_trainable_parameters()[0]), count)
    adapted_layers.fill(model)
    model.save_pretrained(ctx.kept)
    again = peft.PeftModel.from_pretrained(blocks(), ctx.kept)
    given = tiny.values("inputs of lily", (2, 3, WIDTH))
    for how, each in (("as made", model.eval()), ("loaded", again.eval())):
        found = [each.get_submodule(f"base_model.model.{place}.proj") for place in range(DEPTH)]
        off = []
        for place, layer in enumerate(found):
            with torch.no_grad():
                off.append(relative(layer(given), mixed(layer, given)))
            shared = found[place - place % STRIDE]
            yield equal(
                f"A of layer {place} is that of its neighbours, {how}", same(layer, shared, "lily_A"), bound=True
            )
            yield equal(f"B of layer {place} is that of all, {how}", same(layer, found[0], "lily_B"), bound=True)
        yield at_most(f"outputs off, {how}", worst(off), SAME)
        with each.disable_adapter(), torch.no_grad():
            plain = [relative(layer(given), layer.get_base_layer()(given)) for layer in found]
        yield at_most(f"outputs off while disabled, {how}", worst(plain), 0.0)
    apart = same(found[0], found[STRIDE], "lily_A")
    yield equal("A of layers apart is the same", apart, bound=False)
    yield equal("refused: merging", refusal(model.merge_adapter), "NotImplementedError")


def same(one: Any, other: Any, part: str) -> bool:
    import torch

    return bool(torch.equal(getattr(one, part)["default"].weight, getattr(other, part)["default"].weight))


def mixed(layer: Any, given: Any) -> Any:
    """What a layer should give: its base, and the inputs through A and the mean mixture of B, float64."""
    import torch

    a, b, router = (getattr(layer, f"lily_{part}")["default"].weight.double() for part in ("A", "B", "router"))
    rows, plain = given.double(), layer.get_base_layer()
    hidden = rows @ a.T
    shares = torch.softmax(hidden @ router.T, dim=-1).reshape(-1, MIXED).mean(0)
    bank = sum(share * part for share, part in zip(shares, b.reshape(MIXED, RANK, -1), strict=True))
    return rows @ plain.weight.double().T + plain.bias.double() + SCALING * hidden @ bank
