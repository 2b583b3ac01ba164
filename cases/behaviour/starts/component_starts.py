"""Starts from singular vectors: EVA's of a layer's inputs (https://arxiv.org/abs/2410.07170), MiCA's of its weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SAME, SIZES, TARGETS
from cases.behaviour.starts.data_layers import chain, identity, roundoff, sides, spectral
from cases.behaviour.starts.decomposed_starts import off
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Tensors = dict[str, Any]

GROUP = "Start values computed from data"
SCALING = ALPHA / RANK


WORDS = 40  # fewer than 2 r rho components, so that the fast decomposition is exact
RHO = 2.0
IGNORED = -100


def eva_model(**eva: Any) -> Any:
    from peft import EvaConfig, initialize_lora_eva_weights

    config = adapted_layers.lora(init_lora_weights="eva", eva_config=EvaConfig(rho=RHO, **eva))
    model = adapted_layers.adapted(adapted_layers.base(), config)
    initialize_lora_eva_weights(
        model,
        [seen()],
        forward_fn=lambda model, batch: model(batch["input_ids"]),
        show_progress_bar=False,
    )
    return model


def seen() -> Tensors:
    """A batch of two rows with padding and a prompt, whose tokens EVA leaves out."""
    import torch

    ids = torch.arange(adapted_layers.WORDS).view(2, -1)
    mask, labels = torch.ones_like(ids), ids.clone()
    mask[1, -4:] = 0
    labels[0, : adapted_layers.WORDS - WORDS - 4] = IGNORED
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def components(*, labelled: bool = True) -> dict[str, tuple[Any, Any, Any]]:
    """By layer: the principal directions of its inputs, their singular values, and shares of the variance."""
    import torch

    original, batch = adapted_layers.base(), seen()
    learned = batch["attention_mask"].bool()
    learned = learned & (batch["labels"] != IGNORED) if labelled else learned
    inputs = original.words.weight.detach().double()[batch["input_ids"][learned]]
    found = {}
    for name, each in chain(inputs, adapted_layers.originals(original), original):
        _, values, right = torch.linalg.svd(each - each.mean(dim=0), full_matrices=False)
        found[name] = (right, values, values.square() / values.square().sum())
    return found


def ranks(found: Mapping[str, tuple[Any, Any, Any]]) -> dict[str, int]:
    """Ranks of the layers: those of the largest shares, of the rho r first ones of each layer."""
    most = round(RANK * RHO)
    shares = [(float(share), name) for name, (_, _, all_of) in found.items() for share in all_of[:most]]
    best = [name for _, name in sorted(shares, reverse=True)[: RANK * len(TARGETS)]]
    return {name: best.count(name) for name in TARGETS}


@call(GROUP, phase=Phase.ADAPT, requires=("eva",))
def eva_start(ctx: Context) -> Iterator[Check]:
    """EVA starts A with the principal components of a layer's inputs without padding and prompts, and B with zero."""
    del ctx
    model, found = eva_model(), components()
    wanted = ranks(found)
    a, b = sides(model, "lora_A"), sides(model, "lora_B")
    yield equal("ranks", str({name: len(each) for name, each in a.items()}), str(wanted))
    for name, (right, values, _) in found.items():
        rank = wanted[name]
        onto = {name: right[:rank].T @ right[:rank]}
        yield off(f"span of lora_A off, {name}", {name: a[name].T @ a[name]}, onto, roundoff(values, 0, rank))
        along = {name: (a[name] @ right[:rank].T).abs()}
        yield off(f"order of lora_A off, {name}", along, {name: identity(rank)}, roundoff(values, 0, rank))
    yield equal("numbers of lora_B that are not zero", sum(int((each != 0).sum()) for each in b.values()), 0)
    yield adapted_layers.unchanged(model, adapted_layers.base())
    patterns = {name.rpartition(".")[2]: rank for name, rank in model.peft_config["default"].rank_pattern.items()}
    yield equal("rank_pattern", str(patterns), str({name: each for name, each in wanted.items() if each != RANK}))
    scalings = {name: adapted_layers.layer(model, name).scaling["default"] for name in TARGETS}
    yield at_most("scalings off", max(abs(each / SCALING - 1) for each in scalings.values()), SAME)


@call(GROUP, phase=Phase.ADAPT, requires=("eva",))
def eva_settings(ctx: Context) -> Iterator[Check]:
    """EVA whitens its components, counts prompts as well, and keeps alpha, if it is configured so."""
    del ctx
    model, found = (
        eva_model(whiten=True, use_label_mask=False, adjust_scaling_factors=False),
        components(labelled=False),
    )
    wanted = ranks(found)
    for name, (right, values, _) in found.items():
        rank, a = wanted[name], adapted_layers.parts(model, name, "lora_A")
        yield equal(f"rank of {name}", len(a), rank)
        lengths = a.square().sum(dim=1) * values[:rank]
        even = {name: lengths / lengths.mean()}
        within = roundoff(values, 0, rank)
        yield off(f"lengths of lora_A off, {name}", even, {name: lengths.new_ones(rank)}, within)
        along = {name: (a @ right[:rank].T).abs() / a.norm(dim=1)[:, None]}
        yield off(f"order of lora_A off, {name}", along, {name: identity(rank)}, within)
        scaling = adapted_layers.layer(model, name).scaling["default"]
        yield at_most(f"scaling off, {name}", abs(scaling * rank / ALPHA - 1), SAME)


@call(GROUP, phase=Phase.ADAPT, requires=("lora_mica",))
def mica_start(ctx: Context) -> Iterator[Check]:
    """MiCA starts B with the last left singular vectors, which it freezes, and A with zero.

    https://arxiv.org/abs/2604.01694
    """
    import torch

    del ctx
    original = spectral()
    model = adapted_layers.adapted(original, adapted_layers.lora(init_lora_weights="mica"))
    b = sides(model, "lora_B")
    onto, within = {}, SAME
    for name, weight in adapted_layers.originals(original).items():
        left, values, _ = torch.linalg.svd(weight, full_matrices=False)
        onto[name] = left[:, -RANK:] @ left[:, -RANK:].T
        within = max(within, roundoff(values, len(values) - RANK, len(values)))
    yield off("span of lora_B off", {name: each @ each.T for name, each in b.items()}, onto, within)
    unlike = sum(int((each != 0).sum()) for each in sides(model, "lora_A").values())
    yield equal("numbers of lora_A that are not zero", unlike, 0)
    found = adapted_layers.applied(model)
    yield adapted_layers.weights_as(found, adapted_layers.originals(original))
    yield from adapted_layers.trained(model, ("lora_A.",), RANK * sum(into for _, into in SIZES.values()))
