"""Padded training passes with each attention implementation, with and without checkpointing, by the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import GRANITE, Variant
from cases.behaviour.models.losses import known
from cases.model import architectures, tiny
from cases.reference import attention, models, tolerance
from cases.reference.network import Batch
from cases.space.verdict import Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Attention implementations"
BOTH = ("eager", "sdpa")
SIDES = ("padded_left", "padded_right")


def passes(ctx: Context, variant: Variant, implementations: Sequence[str] = BOTH, begin: str = "") -> Iterator[Check]:
    """Compare logits of real tokens, the loss and all gradients on rows that are padded on either side."""
    folder = variant.written(ctx, f"attention{begin}")
    for implementation in implementations:
        for side in SIDES:
            loaded = building.loaded(ctx, folder, attn_implementation=implementation)
            yield from building.compared(
                f"{begin}{implementation}, {side}", loaded, building.network(folder), building.rows(side)
            )


def checkpointed(ctx: Context, model: str, implementation: str = "sdpa", **changes: Any) -> Iterator[Check]:
    """As above with checkpointing, in both forms; use_cache=True is what a published configuration states."""
    folder = Variant(model, {"use_cache": True, **changes}).written(ctx, "checkpointing")
    for reentrant, side in zip((True, False), SIDES, strict=True):
        loaded = building.loaded(ctx, folder, attn_implementation=implementation)
        loaded.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        if reentrant:
            loaded.enable_input_require_grads()  # as documented: a layer whose inputs need no gradient passes none on
        network = building.network(folder)
        yield from building.compared(f"use_reentrant={reentrant}", loaded, network, building.rows(side))


@call(GROUP, phase=Phase.BACKWARD)
def attention_llama(ctx: Context) -> Iterator[Check]:
    """Eager and SDPA attention of Llama agree with the reference on rows padded on either side, in training."""
    yield from passes(ctx, Variant("llama"))


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen",))
def attention_qwen2(ctx: Context) -> Iterator[Check]:
    """Eager and SDPA attention of Qwen 2 agree with the reference on rows padded on either side, in training."""
    yield from passes(ctx, Variant("qwen"))


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen3",))
def attention_qwen3(ctx: Context) -> Iterator[Check]:
    """Eager and SDPA attention of Qwen 3 agree with the reference on rows padded on either side, in training."""
    yield from passes(ctx, Variant("qwen3"))


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mistral", "sdpa_mistral"))
def attention_mistral(ctx: Context) -> Iterator[Check]:
    """Eager and SDPA attention with Mistral's window agree with the reference on rows padded on either side."""
    yield from passes(ctx, Variant("mistral"))


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral",))
def attention_mixtral(ctx: Context) -> Iterator[Check]:
    """Eager and SDPA attention of Mixtral agree with the reference on rows padded on either side, in training."""
    yield from passes(ctx, Variant("mixtral"))


@call(GROUP, phase=Phase.BACKWARD, requires=("model_gemma",))
def attention_gemma2(ctx: Context) -> Iterator[Check]:
    """Eager attention of Gemma 2 with windows and caps agrees with the reference on rows padded on either side."""
    yield from passes(ctx, Variant("gemma"), ("eager",))


@call(GROUP, phase=Phase.BACKWARD, requires=("granite",))
def attention_granite(ctx: Context) -> Iterator[Check]:
    """Granite's four multipliers act in both attentions as in the reference, also beside biases and a tied head."""
    yield from passes(ctx, Variant(changes=GRANITE))
    biased = {**GRANITE, "attention_bias": True, "mlp_bias": True, "residual_multiplier": 1.3, "logits_scaling": 0.5}
    yield from passes(ctx, Variant(changes=biased, tied=True), ("sdpa",), "biased, ")


@call(GROUP, phase=Phase.BACKWARD, requires=("sdpa_gpt2",))
def attention_gpt2(ctx: Context) -> Iterator[Check]:
    """Eager and SDPA attention of GPT-2 agree with the reference on rows padded on either side, in training."""
    yield from passes(ctx, Variant("gpt2"))


@call(GROUP, phase=Phase.BACKWARD)
def attention_t5_eager(ctx: Context) -> Iterator[Check]:
    """Eager attention of T5's encoder, decoder and between them agrees with the reference on padded rows."""
    yield from passes(ctx, Variant("t5"), ("eager",))


@call(GROUP, phase=Phase.BACKWARD, requires=("sdpa_t5",))
def attention_t5_sdpa(ctx: Context) -> Iterator[Check]:
    """SDPA attention of T5's encoder, decoder and between them agrees with the reference on padded rows."""
    yield from passes(ctx, Variant("t5"), ("sdpa",))


@call(GROUP, phase=Phase.BACKWARD)
def checkpointed_llama(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give Llama the gradients of the reference on padded rows, also with use_cache=True.

    https://huggingface.co/docs/transformers/grad_checkpointing
    """
    yield from checkpointed(ctx, "llama")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen",))
def checkpointed_qwen2(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give Qwen 2 the gradients of the reference on padded rows."""
    yield from checkpointed(ctx, "qwen")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen3",))
def checkpointed_qwen3(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give Qwen 3 the gradients of the reference on padded rows."""
    yield from checkpointed(ctx, "qwen3")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mistral", "sdpa_mistral"))
def checkpointed_mistral(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give Mistral the gradients of the reference on padded rows."""
    yield from checkpointed(ctx, "mistral")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral",))
def checkpointed_mixtral(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give Mixtral the gradients of the reference on padded rows."""
    yield from checkpointed(ctx, "mixtral")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_gemma",))
def checkpointed_gemma2(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give Gemma 2 the gradients of the reference on padded rows."""
    yield from checkpointed(ctx, "gemma", "eager")


@call(GROUP, phase=Phase.BACKWARD, requires=("granite",))
def checkpointed_granite(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give Granite the gradients of the reference on padded rows."""
    yield from checkpointed(ctx, "llama", **GRANITE)


@call(GROUP, phase=Phase.BACKWARD)
def checkpointed_gpt2(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give GPT-2 the gradients of the reference on padded rows."""
    yield from checkpointed(ctx, "gpt2", "eager")


@call(GROUP, phase=Phase.BACKWARD)
def checkpointed_t5(ctx: Context) -> Iterator[Check]:
    """Both forms of checkpointing give both stacks of T5 the gradients of the reference on padded rows."""
    yield from checkpointed(ctx, "t5", "eager")


@call(GROUP, phase=Phase.BACKWARD)
def masks_of_pairs(ctx: Context) -> Iterator[Check]:
    """A mask of each pair of tokens, zero or the lowest number, keeps packed documents apart, in both implementations.

    https://huggingface.co/blog/poedator/4d-masks
    """
    import torch

    rows = building.rows("packed")
    pairs = torch.zeros(len(rows.ids), 1, rows.ids.shape[1], rows.ids.shape[1])
    hidden = ~attention.mask(Batch(ids=rows.ids, documents=rows.documents))
    given = pairs.masked_fill(hidden, torch.finfo(torch.float32).min)
    for model in known(decoders=False):
        if model in ("gpt2", "gemma", "mistral"):
            continue  # their layers have windows, or some versions accept masks of tokens only
        folder = Variant(model).written(ctx, "pairs")
        for implementation in BOTH:
            loaded = building.loaded(ctx, folder, attn_implementation=implementation)
            mask = given.to(loaded.device)
            name = f"{implementation}, {model}"
            yield from building.compared(name, loaded, building.network(folder), rows, attention_mask=mask)


def masks_by_dtype(ctx: Context, implementation: str) -> Iterator[Check]:
    """Compare the logits of T5 for texts and answers padded in front with those of each answer alone.

    T5 knows distances between tokens only, so padding before an answer moves nothing.
    """
    import torch

    folder = Variant("t5").written(ctx, "masked")
    network, loaded = building.network(folder), building.loaded(ctx, folder, attn_implementation=implementation)
    rows = building.rows("padded_left")
    real = torch.ones_like(rows.ids, dtype=torch.bool) if rows.real is None else rows.real
    answers, kept = torch.zeros_like(rows.ids), torch.zeros_like(rows.ids, dtype=torch.bool)
    wanted = []
    for number, answer in enumerate(architectures.shifted(tiny.batch(1)[: len(rows.ids)])):
        alone = answer[: len(answer) - number]
        answers[number, number:], kept[number, number:] = alone, True
        text = Batch(ids=rows.ids[number][None], real=real[number][None], decoder_ids=alone[None])
        wanted.append(models.logits(network, text).detach()[0])
    for dtype in (torch.bool, torch.int64, torch.float32):
        given = {
            "input_ids": rows.ids,
            "attention_mask": real.to(dtype),
            "decoder_input_ids": answers,
            "decoder_attention_mask": kept.to(dtype),
        }
        with torch.no_grad():
            found = loaded(**{name: tensor.to(loaded.device) for name, tensor in given.items()}).logits.cpu()
        off = tolerance.relative(found[kept], torch.cat(wanted))
        yield at_most(f"logits off, masks of {dtype}", off, building.bound("logits"))


@call(GROUP, phase=Phase.FORWARD)
def mask_dtypes_of_t5_eager(ctx: Context) -> Iterator[Check]:
    """Eager attention of T5 hides padding of texts and answers by masks of booleans as by masks of ones and zeros."""
    yield from masks_by_dtype(ctx, "eager")


@call(GROUP, phase=Phase.FORWARD, requires=("sdpa_t5",))
def mask_dtypes_of_t5_sdpa(ctx: Context) -> Iterator[Check]:
    """SDPA attention of T5 hides padding of texts and answers by masks of booleans as by masks of ones and zeros."""
    yield from masks_by_dtype(ctx, "sdpa")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral", "experts_implementation"))
def experts_of_mixtral(ctx: Context) -> Iterator[Check]:
    """Each experts_implementation gives Mixtral the logits and gradients of the reference, also with unused experts.

    https://huggingface.co/docs/transformers/main/en/experts_interface
    """
    # The gradient of a router is a difference of what its experts add, which may cancel: perturbed inputs move the
    # gradients of the other rows by up to 51 times the perturbation, and those of this one by 5.5 times. What float32
    # does to it (cases.reference.tolerance) is then less than the bound. It also leaves experts unused.
    few = building.rows().each(lambda tensor: tensor[2:3, :3])
    for name, changes in (("two of four", {}), ("three of six", {"num_local_experts": 6, "num_experts_per_tok": 3})):
        folder = Variant("mixtral", changes).written(ctx, name)
        for implementation in ("eager", "batched_mm", "grouped_mm"):
            for kind, rows in (("padded", building.rows("padded_left")), ("three tokens", few)):
                loaded = building.loaded(ctx, folder, experts_implementation=implementation)
                yield from building.compared(
                    f"{implementation}, {name}, {kind}", loaded, building.network(folder), rows
                )
