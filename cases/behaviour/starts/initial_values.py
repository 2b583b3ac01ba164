"""LoRA as PEFT starts it: the distribution of A, B at zero, the scaling, other kinds of layers."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.api import models as tiny_models
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SIZES, TARGETS, WORDS
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Start values of LoRA"
NUMBERS = RANK * sum(out + into for out, into in SIZES.values())  # A: (r, in), B: (out, r)
WIDTH = SIZES["wide"][1]


def zero(model: Any, part: str, names: tuple[str, ...] = TARGETS) -> Check:
    count = sum(int((adapted_layers.parts(model, name, part) != 0).sum()) for name in names)
    return equal(f"numbers of {part} that are not zero", count, 0)


def in_units(model: Any, part: str) -> Any:
    """All layers' values of a part in units of 1 / sqrt(fan in), the number of columns."""
    import torch

    found = [adapted_layers.parts(model, name, part) for name in TARGETS]
    return torch.cat([(each * each.shape[1] ** 0.5).flatten() for each in found])


@call(GROUP, phase=Phase.ADAPT)
def lora_start(ctx: Context) -> Iterator[Check]:
    """LoRA starts with a Kaiming-uniform A and B at zero, so the adapted model equals its base in every bit.

    PEFT documents that ``init_lora_weights=True`` follows the reference implementation of LoRA: Kaiming-uniform with
    a = sqrt(5), which is uniform within 1 / sqrt(in) (https://arxiv.org/abs/1502.01852).
    """
    del ctx
    original = adapted_layers.base()
    model = adapted_layers.adapted(original, adapted_layers.lora())
    samples = in_units(model, "lora_A")
    yield from adapted_layers.distributed("lora_A", samples, adapted_layers.uniform())
    yield at_most("largest lora_A, in units of 1 / sqrt(in)", float(samples.abs().max()), 1 + 2.0**-20)
    yield zero(model, "lora_B")
    yield equal("distinct numbers of lora_A", len(samples.unique()) > len(samples) // 2, bound=True)
    yield adapted_layers.unchanged(model, original)
    yield from adapted_layers.trained(model, ("lora_A.default", "lora_B.default"), NUMBERS)


@call(GROUP, phase=Phase.ADAPT)
def lora_gaussian_start(ctx: Context) -> Iterator[Check]:
    """init_lora_weights="gaussian" draws A from a normal distribution with standard deviation 1 / r.

    The documentation of ``LoraConfig``: "Gaussian initialization scaled by the LoRA rank for linear layers".
    """
    import torch

    del ctx
    original = adapted_layers.base()
    model = adapted_layers.adapted(original, adapted_layers.lora(init_lora_weights="gaussian"))
    samples = torch.cat([adapted_layers.parts(model, name, "lora_A").flatten() * RANK for name in TARGETS])
    yield from adapted_layers.distributed("lora_A", samples, adapted_layers.normal())
    yield zero(model, "lora_B")
    yield adapted_layers.unchanged(model, original)


@call(GROUP, phase=Phase.ADAPT)
def lora_random_start(ctx: Context) -> Iterator[Check]:
    """init_lora_weights=False starts with random A and B, so the model differs from its base by alpha / r B A."""
    del ctx
    original = adapted_layers.base()
    model = adapted_layers.adapted(original, adapted_layers.lora(init_lora_weights=False))
    left = sum(int((adapted_layers.parts(model, name, "lora_B") == 0).sum()) for name in TARGETS)
    yield equal("numbers of lora_B that are zero", left, 0)
    yield scaled(model, original, dict.fromkeys(TARGETS, ALPHA / RANK))


def scaled(model: Any, original: Any, scaling: dict[str, float]) -> Check:
    """Compare applied weights with W + s B A."""
    expected = {
        name: weight + adapted_layers.update(model, name, scaling[name])
        for name, weight in adapted_layers.originals(original).items()
    }
    return adapted_layers.weights_as(adapted_layers.applied(model), expected)


@call(GROUP, phase=Phase.FORWARD)
def lora_scaling(ctx: Context) -> Iterator[Check]:
    """A LoRA layer adds alpha / r B A to its weight (https://arxiv.org/abs/2106.09685, section 4.1)."""
    del ctx
    original = adapted_layers.base()
    model = adapted_layers.fill(adapted_layers.adapted(original, adapted_layers.lora()))
    yield scaled(model, original, dict.fromkeys(TARGETS, ALPHA / RANK))


@call(GROUP, phase=Phase.FORWARD, requires=("rslora",))
def rslora_scaling(ctx: Context) -> Iterator[Check]:
    """Rank-stabilised LoRA scales by alpha / sqrt(r), also with a rank of its own for a layer (arXiv 2312.03732)."""
    del ctx
    original = adapted_layers.base()
    config = adapted_layers.lora(use_rslora=True, rank_pattern={"tall": 5})
    model = adapted_layers.fill(adapted_layers.adapted(original, config))
    yield scaled(model, original, {"wide": ALPHA / RANK**0.5, "tall": ALPHA / 5**0.5})


@call(GROUP, phase=Phase.FORWARD)
def lora_patterns(ctx: Context) -> Iterator[Check]:
    """rank_pattern and alpha_pattern give a layer its own r and alpha, and the others keep theirs."""
    del ctx
    original = adapted_layers.base()
    patterns: tuple[tuple[dict[str, int], dict[str, int], dict[str, float]], ...] = (
        ({"tall": 5}, {}, {"wide": ALPHA / RANK, "tall": ALPHA / 5}),
        ({}, {"wide": 7}, {"wide": 7 / RANK, "tall": ALPHA / RANK}),
        ({"wide": 3}, {"wide": 7}, {"wide": 7 / 3, "tall": ALPHA / RANK}),
    )
    for ranks, alphas, scaling in patterns:
        config = adapted_layers.lora(rank_pattern=ranks, alpha_pattern=alphas)
        model = adapted_layers.fill(adapted_layers.adapted(original, config))
        found = {name: adapted_layers.parts(model, name, "lora_A").shape[0] for name in TARGETS}
        yield equal("ranks", str(found), str({name: ranks.get(name, RANK) for name in TARGETS}))
        yield scaled(model, original, scaling)


@call(GROUP, phase=Phase.ADAPT, requires=("lora_orthogonal",))
def lora_orthogonal_start(ctx: Context) -> Iterator[Check]:
    """init_lora_weights="orthogonal" starts with non-zero A and B whose product is zero."""
    del ctx
    original = adapted_layers.base()
    model = adapted_layers.adapted(original, adapted_layers.lora(init_lora_weights="orthogonal"))
    for part in ("lora_A", "lora_B"):
        left = sum(int((adapted_layers.parts(model, name, part) == 0).sum()) for name in TARGETS)
        yield equal(f"numbers of {part} that are zero", left, 0)
    yield adapted_layers.weights_as(adapted_layers.applied(model), adapted_layers.originals(original))


@call(GROUP, phase=Phase.ADAPT)
def second_lora_start(ctx: Context) -> Iterator[Check]:
    """A second LoRA adapter starts with no effect beside a trained one, and with its own r and alpha."""
    del ctx
    original = adapted_layers.base()
    model = adapted_layers.fill(adapted_layers.adapted(original, adapted_layers.lora()))
    before = adapted_layers.applied(model)
    model.add_adapter("second", adapted_layers.lora(r=5, lora_alpha=ALPHA + 1))
    yield adapted_layers.weights_as(adapted_layers.applied(model), before, 0.0)
    model.set_adapter("second")
    yield adapted_layers.unchanged(model, original)
    numbers = 5 * sum(out + into for out, into in SIZES.values())
    yield from adapted_layers.trained(model, ("lora_A.second", "lora_B.second"), numbers)


@call(GROUP, phase=Phase.ADAPT)
def lora_on_embeddings_start(ctx: Context) -> Iterator[Check]:
    """LoRA on embeddings starts with A at zero and a normal B, and adds alpha / r (B A) transposed to the table.

    The start is that of the reference implementation (https://github.com/microsoft/LoRA, ``loralib/layers.py``).
    """
    import torch

    del ctx
    original = adapted_layers.base()
    model = adapted_layers.adapted(original, adapted_layers.lora(target_modules=["words"]))
    yield zero(model, "lora_embedding_A", ("words",))
    b = adapted_layers.parts(model, "words", "lora_embedding_B")
    yield from adapted_layers.distributed("lora_embedding_B", b, adapted_layers.normal())
    yield adapted_layers.unchanged(model, original)
    yield from adapted_layers.trained(model, ("lora_embedding_",), RANK * (WORDS + WIDTH))
    adapted_layers.fill(model)
    a, b = (adapted_layers.parts(model, "words", f"lora_embedding_{side}") for side in "AB")
    expected = original.words.weight.double() + ALPHA / RANK * (b @ a).T
    with torch.no_grad():
        found = adapted_layers.layer(model, "words")(torch.arange(WORDS))
    yield at_most("embeddings off", tolerance.relative(found, expected.detach()), adapted_layers.SAME)
    yield from embeddings_with_arguments()


def embeddings_with_arguments() -> Iterator[Check]:
    """The arguments of torch's Embedding hold for A as for the table: looked-up rows are scaled down, or not trained.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html: rows of a norm above max_norm are
    renormalised to it, that of padding_idx gets no gradient, and scale_grad_by_freq divides by the row's count.
    """
    import torch

    rows, width = 7, 5
    ids = torch.tensor([[1, 2, 2, 5], [3, 1, 2, 2]])
    for norm, least, counted in product((1.0, 2.0, 3.0), (None, 0.4), (False, True)):
        chosen = {"max_norm": least, "norm_type": norm, "padding_idx": 3, "scale_grad_by_freq": counted}
        plain = torch.nn.Sequential()
        plain.add_module("words", torch.nn.Embedding(rows, width, **chosen))
        tiny.fill(plain)
        model = adapted_layers.fill(adapted_layers.adapted(plain, adapted_layers.lora(target_modules=["words"])))
        a, b = (adapted_layers.parts(model, "words", f"lora_embedding_{side}") for side in "AB")
        tables = [plain.words.weight.detach().double(), a.T]
        for table in tables if least else ():
            sizes = table.norm(norm, dim=1, keepdim=True)
            table.mul_(torch.where(sizes > least, least / (sizes + 1e-7), torch.ones_like(sizes)))
        title = f"max_norm={least}, norm_type={norm}, scale_grad_by_freq={counted}"
        found = adapted_layers.layer(model, "words")(ids)
        wanted = tables[0][ids] + ALPHA / RANK * tables[1][ids] @ b.T
        yield at_most(f"embeddings off, {title}", tolerance.relative(found.detach(), wanted), adapted_layers.SAME)
        found.sum().backward()
        counts = torch.bincount(ids.flatten(), minlength=rows).double()
        counts = (counts > 0).double() if counted else counts
        counts[3] = 0.0
        gradient = adapted_layers.layer(model, "words").lora_embedding_A["default"].grad
        each = ALPHA / RANK * b.sum(0)[:, None] * counts
        yield at_most(f"gradient of A off, {title}", tolerance.relative(gradient, each), adapted_layers.SAME)


@call(GROUP, phase=Phase.ADAPT)
def lora_on_conv1d_start(ctx: Context) -> Iterator[Check]:
    """LoRA on GPT-2's Conv1D layers starts with no effect, and adds alpha / r B A, transposed as they store weights."""
    del ctx
    original = adapted_layers.conv1d()
    model = adapted_layers.adapted(original, adapted_layers.lora(fan_in_fan_out=True))
    yield from adapted_layers.distributed("lora_A", in_units(model, "lora_A"), adapted_layers.uniform())
    yield adapted_layers.weights_as(adapted_layers.applied(model), adapted_layers.originals(original))
    yield from adapted_layers.trained(model, ("lora_A.default", "lora_B.default"), NUMBERS)
    adapted_layers.fill(model)
    yield scaled(model, original, dict.fromkeys(TARGETS, ALPHA / RANK))


@call(GROUP, phase=Phase.ADAPT)
def lora_default_targets(ctx: Context) -> Iterator[Check]:
    """LoraConfig() without arguments adapts a Llama model's q_proj and v_proj with r = alpha = 8, with no effect."""
    from peft import LoraConfig, get_peft_model

    original = tiny_models.loaded(ctx, dtype="fp32")
    before = tiny_models.logits(original)
    model = get_peft_model(original, LoraConfig(task_type="CAUSAL_LM"))
    after = tiny_models.logits(model)
    yield equal("logits that differ from the base's", int((after != before).sum()), 0)
    query, value = 2 * tiny.HIDDEN, tiny.HIDDEN + tiny.HIDDEN // 2  # two groups of keys and values for four heads
    marks = ("q_proj.lora_A", "q_proj.lora_B", "v_proj.lora_A", "v_proj.lora_B")
    yield from adapted_layers.trained(model, marks, tiny.LAYERS * 8 * (query + value))
    layer = tiny_models.projection(model)
    adapted_layers.fill(model)
    weight, a, b = (
        each.weight.detach().double() for each in (layer.base_layer, layer.lora_A["default"], layer.lora_B["default"])
    )
    import torch

    with torch.no_grad():
        found = layer(torch.eye(tiny.HIDDEN, device=weight.device)).double().T
    yield at_most("applied weights off", tolerance.relative(found, weight + b @ a), adapted_layers.SAME)


@call(GROUP, phase=Phase.ADAPT)
def lora_on_head_start(ctx: Context) -> Iterator[Check]:
    """LoRA on lm_head starts with no effect and adds alpha / r B A to the head alone."""
    import torch
    from peft import get_peft_model

    model = tiny_models.loaded(ctx, dtype="fp32")
    before, weight = tiny_models.logits(model), model.lm_head.weight.detach().double().clone()
    model = get_peft_model(model, tiny_models.config(r=RANK, lora_alpha=ALPHA, target_modules=["lm_head"]))
    yield equal("logits that differ from the base's", int((tiny_models.logits(model) != before).sum()), 0)
    yield from adapted_layers.trained(model, ("lm_head.lora_",), RANK * (tiny.VOCABULARY + tiny.HIDDEN))
    head = adapted_layers.layer(adapted_layers.fill(model), "lm_head")
    with torch.no_grad():
        found = head(torch.eye(tiny.HIDDEN, device=weight.device)).double().T
    expected = weight + adapted_layers.update(model, "lm_head", ALPHA / RANK)
    yield at_most("applied weights off", tolerance.relative(found, expected), adapted_layers.SAME)
