"""Rotary positions as released configurations scale them, in each architecture, by the reference.

YaRN and LongRoPE multiply rotated queries and keys by an attention factor, which short rows show too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import REMOVED, Variant
from cases.behaviour.models.losses import known
from cases.model import tiny
from cases.model.architectures import ROPE_SCALINGS
from cases.reference import models, tolerance
from cases.reference.network import Batch
from cases.space.options import Options
from cases.space.verdict import Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Configurations"
YARN = ROPE_SCALINGS["yarn"]["rope_scaling"]
LONG = ROPE_SCALINGS["longrope"]

LATE, LAST = 600, 100  # tokens of a row, and how many of them are compared
STATED = {"head_dim": tiny.HIDDEN // 4}
THETA: dict[str, Any] = {"theta": {"rope_theta": 1000.0}}
SCALED: dict[str, Any] = {
    "linear": ROPE_SCALINGS["linear"],
    "llama3": ROPE_SCALINGS["llama3"],
    "yarn": ROPE_SCALINGS["yarn"],
    "yarn with a factor": {**ROPE_SCALINGS["yarn"], "rope_scaling": {**YARN, "attention_factor": 1.5}},
    "yarn with other bounds": {**ROPE_SCALINGS["yarn"], "rope_scaling": {**YARN, "beta_fast": 8, "beta_slow": 2}},
}
LONG_AND_SHORT: dict[str, Any] = {
    "longrope, long": LONG,
    "longrope, short": {**LONG, "original_max_position_embeddings": 2 * tiny.LENGTH},
}


def compared(ctx: Context, model: str, changes: Mapping[str, Any], **arguments: Any) -> Iterator[Check]:
    for name, each in changes.items():
        folder = Variant(model, each).written(ctx, name)
        loaded = building.loaded(ctx, folder, **arguments)
        yield from building.compared(name, loaded, building.network(folder), building.rows("padded_left"))


@call(GROUP, phase=Phase.BACKWARD, requires=("rope_scaling_llama3", "rope_scaling_yarn", "rope_scaling_longrope"))
def rotary_llama(ctx: Context) -> Iterator[Check]:
    """rope_theta and each scaling have their effect on Llama's logits and gradients.

    transformers 4.47 computes YaRN from max_position_embeddings instead of the stated trained length, and uses
    LongRoPE's long factors for short texts too.
    """
    weighed = {**ROPE_SCALINGS["yarn"], "rope_scaling": {**YARN, "mscale": 2.0, "mscale_all_dim": 0.5}}
    yield from compared(ctx, "llama", {**THETA, **SCALED, "yarn with two weights": weighed, **LONG_AND_SHORT})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen", "scaled_positions_qwen"))
def rotary_qwen2(ctx: Context) -> Iterator[Check]:
    """rope_theta and each scaling have their effect on Qwen 2's logits and gradients; its long texts use YaRN."""
    yield from compared(ctx, "qwen", {**THETA, **SCALED})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen", "scaled_positions_qwen", "rope_scaling_longrope"))
def rotary_qwen2_long(ctx: Context) -> Iterator[Check]:
    """LongRoPE has its effect in a configuration without a width of heads, which it derives, as of Qwen 2 and Phi 3."""
    yield from compared(ctx, "qwen", LONG_AND_SHORT)


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen3", "scaled_positions_qwen3"))
def rotary_qwen3(ctx: Context) -> Iterator[Check]:
    """rope_theta and each scaling have their effect on Qwen 3's logits and gradients; its long texts use YaRN."""
    yield from compared(ctx, "qwen3", {**THETA, **SCALED})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mistral", "scaled_positions_mistral"))
def rotary_mistral(ctx: Context) -> Iterator[Check]:
    """rope_theta, each scaling and a head's own width have their effect on Mistral's logits and gradients."""
    wide = {**ROPE_SCALINGS["yarn"], "head_dim": 24}
    yield from compared(ctx, "mistral", {**THETA, **SCALED, "yarn in wide heads": wide})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral", "scaled_positions_mixtral"))
def rotary_mixtral(ctx: Context) -> Iterator[Check]:
    """rope_theta and each scaling have their effect on Mixtral's logits and gradients, if head_dim is stated."""
    changes = {name: {**each, **STATED} for name, each in {**THETA, **SCALED}.items()}
    yield from compared(ctx, "mixtral", changes)


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral", "scaled_positions_mixtral"))
def rotary_mixtral_published(ctx: Context) -> Iterator[Check]:
    """YaRN works in a Mixtral configuration that does not state head_dim, as the published ones do not.

    transformers 5 reads the width of a head with ``getattr(config, "head_dim", ...)``, which is None for Mixtral.
    """
    yield from compared(ctx, "mixtral", {"yarn": SCALED["yarn"]})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_gemma", "scaled_positions_gemma"))
def rotary_gemma2(ctx: Context) -> Iterator[Check]:
    """rope_theta and each scaling have their effect on Gemma 2's logits and gradients."""
    yield from compared(ctx, "gemma", {**THETA, **SCALED}, attn_implementation="eager")


@call(GROUP, phase=Phase.BACKWARD, requires=("rope_parameters",))
def rotary_parameters(ctx: Context) -> Iterator[Check]:
    """rope_parameters, as transformers 5 writes them, have the effect of rope_theta and rope_scaling.

    https://huggingface.co/docs/transformers/main/en/main_classes/rope
    """
    for model in ("llama", "qwen", "qwen3", "mistral", "mixtral", "gemma"):
        for kind, each in (("default", {}), ("yarn", ROPE_SCALINGS["yarn"])):
            stated = {"rope_type": kind, "rope_theta": 1000.0, **each.get("rope_scaling", {})}
            changes = {**each, **STATED, "rope_theta": REMOVED, "rope_scaling": REMOVED, "rope_parameters": stated}
            yield from compared(ctx, model, {f"{kind} of {model}": changes}, attn_implementation="eager")


@call(GROUP, phase=Phase.INFER)
def rotary_in_half_precision(ctx: Context) -> Iterator[Check]:
    """A model in bfloat16 rotates late tokens by angles in float32: bfloat16 does not hold positions beyond 256.

    https://arxiv.org/abs/2411.13476
    """
    import torch

    ids = tiny.batch(0, length=LATE)[:1]
    for model in known(decoders=False):
        if model in ("gpt2", "mixtral"):  # no rotary positions; rounding may choose another expert
            continue
        folder = Variant(model, {"max_position_embeddings": LATE}).written(ctx, "late")
        expected = models.logits(building.network(folder), Batch(ids=ids)).detach()[:, -LAST:]
        loaded = building.loaded(ctx, folder, attn_implementation="eager", torch_dtype=torch.bfloat16)
        with torch.no_grad():
            found = loaded(input_ids=ids.to(loaded.device)).logits[:, -LAST:].float().cpu()
        bound = tolerance.bound("logits", Options().but(torch_dtype="bf16")) / 2  # of one pass without training
        yield at_most(f"logits of late tokens off, {model}", tolerance.relative(found, expected), bound)
