"""The evidence of the loop's options: steps, precision, accumulation, attention, optimiser, compilation, front end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.apply import compat, compiling, optimiser_step
from cases.apply.attention import WHOLE, implementation
from cases.checks.engagement.recorder import class_names
from cases.model import data as rows_of_tokens
from cases.model import tiny
from cases.reference import quantisation, tolerance
from cases.space.options import TRAINING
from cases.space.verdict import at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.checks.engagement.recorder import EngagementRecorder
    from cases.space.verdict import Check

EXACT = 1e-6  # norms of the same float32 numbers, summed once as they are and once divided by a power of two
CLIP_SLACK = 2e-6 / quantisation.MAX_NORM  # torch adds 1e-6 to the norm before it divides by it


def flow(recorder: EngagementRecorder) -> Iterator[Check]:
    yield equal("optimiser steps", recorder.updates, recorder.steps if recorder.options.flow in TRAINING else 0)


def autocast(recorder: EngagementRecorder) -> Iterator[Check]:
    asked = recorder.options.autocast
    expected = recorder.options.torch_dtype if asked == "off" else asked
    if recorder.options.mixed_precision != "off":
        expected = "bf16"
    if (
        recorder.quantised_names and not recorder.computed_in
    ):  # TRL multiplies by the head's weights itself: no plain layer ran
        yield equal("dtype asked of layers", "+".join(sorted(recorder.requested_dtypes)), expected)
        return
    yield equal("output dtype of linear layers", "+".join(sorted(recorder.computed_in)), expected)
    if asked == "fp16":
        yield equal("steps with a scaled loss", sum(scale > 1 for scale in recorder.trace.scales), recorder.steps)
    if asked == "fp16" and recorder.options.front_end == "loop":  # front ends unscale internally
        pairs = zip(recorder.trace.unscaled_by, recorder.trace.scales, strict=True)
        off = max((abs(found / scale - 1) for found, scale in pairs), default=float("inf"))
        yield at_most("gradients unscaled by the scale", off, EXACT)


def data(recorder: EngagementRecorder) -> Iterator[Check]:
    """Check that attention gets a mask of padded or packed rows.

    FlashAttention gets the bounds of packed documents instead. Masked labels show in the loss, which the twin computes.
    """
    is_packed = recorder.options.data == "packed" and recorder.options.attn_implementation != "flash_attention_2"
    if recorder.options.data == "long":
        yield equal(
            "tokens of a row",
            "+".join(map(str, sorted(recorder.row_lengths))),
            str(rows_of_tokens.length(recorder.options)),
        )
    if not recorder.options.data.startswith("padded") and not is_packed:
        return
    padded = [True] if is_packed else rows_of_tokens.padded_batches(recorder.options, recorder.place.rank)
    masked = "+".join(sorted(map(str, recorder.attention_masked)))
    if all(padded):
        yield equal("attention passes with a mask", masked, "True")
    elif any(padded):  # versions drop the mask of a batch without padding, or keep it
        yield equal("a mask reaches attention", "True" in masked, bound=True)


def gradient_checkpointing(recorder: EngagementRecorder) -> Iterator[Check]:
    once = {"off": [True], "reentrant": [False, True], "non_reentrant": [True, True]}[
        recorder.options.gradient_checkpointing
    ]
    words = {True: "with gradients", False: "without"}
    patterns = {", ".join(words[gradients] for gradients in each) for each in recorder.training_passes()}
    expected = ", ".join(
        words[gradients] for gradients in once * recorder.steps * recorder.options.gradient_accumulation_steps
    )
    yield equal("passes of every layer", "+".join(sorted(patterns)), expected)


def gradient_accumulation_steps(recorder: EngagementRecorder) -> Iterator[Check]:
    yield equal(
        "micro-batches", recorder.trace.micro_batches, recorder.steps * recorder.options.gradient_accumulation_steps
    )
    if optimiser_step.exchanges_gradients(recorder.options):
        kept = recorder.steps * (recorder.options.gradient_accumulation_steps - 1)
        yield equal("micro-batches whose gradients stayed local", sum(recorder.trace.kept_local), kept)


def clip_grad_norm(recorder: EngagementRecorder) -> Iterator[Check]:
    if not recorder.options.clip_grad_norm:
        return
    bound = quantisation.MAX_NORM
    yield equal("steps with a norm above the bound", sum(norm > bound for norm in recorder.trace.norms), recorder.steps)
    off = max((abs(norm / bound - 1) for norm in recorder.trace.clipped_norms), default=float("inf"))
    yield at_most("clipped norm off the bound", off, CLIP_SLACK + tolerance.bound("gradient scale", recorder.options))


def attn_implementation(recorder: EngagementRecorder) -> Iterator[Check]:
    asked = recorder.options.attn_implementation
    if asked == "default":
        return  # the version decides, so there is nothing to check
    kernel = recorder.kernels.ran
    yield equal("attention implementation", recorder.attention, implementation(recorder.options))
    if asked == "sdpa":
        yield equal("attention by torch's own function", WHOLE in recorder.kernels.operators, bound=True)
    else:
        yield equal("attention kernel", kernel, asked)


def optim(recorder: EngagementRecorder) -> Iterator[Check]:
    classes = {"sgd": "SGD", "adamw": "AdamW", "adamw_8bit": "AdamW8bit", "paged_adamw_8bit": "PagedAdamW8bit"}
    yield equal("optimiser class", type(recorder.optimiser).__name__, classes[recorder.options.optim])
    if recorder.options.optim.endswith("8bit"):
        moments = [state[name] for state in recorder.optimiser.state.values() for name in ("state1", "state2")]
        yield equal("dtypes of the moments", "+".join(sorted({compat.dtype_name(m.dtype) for m in moments})), "uint8")
        yield equal("paged", bool(recorder.optimiser.is_paged), recorder.options.optim.startswith("paged"))


def optim_implementation(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.options.optim_implementation == "default":
        return
    rule = {"sgd": "sgd", "adamw": "adamw"}[recorder.options.optim]
    ran = {"foreach": "aten._foreach_add_", "fused": f"aten._fused_{rule}_"}[recorder.options.optim_implementation]
    names = {name for name in recorder.trace.operations if name.startswith(("aten._foreach", "aten._fused"))}
    yield equal(f"{ran} in the optimiser's step", any(name.startswith(ran) for name in names), bound=True)


def torch_compile(recorder: EngagementRecorder) -> Iterator[Check]:
    graphs = compiling.GRAPHS
    if not recorder.options.torch_compile:
        yield equal("compiled graphs", graphs.made, 0)
        return
    yield at_least("operations in the largest graph", graphs.largest, compiling.FEWEST_CALLS)
    yield at_least(
        "runs of compiled graphs", graphs.runs, recorder.steps * recorder.options.gradient_accumulation_steps
    )


def front_end(recorder: EngagementRecorder) -> Iterator[Check]:
    """Check that accelerate holds the optimiser that stepped, or that the trainer counted the steps."""
    wanted = {"loop": "NoneType", "accelerate": "Accelerator", "trainer": "Trainer", "sft": "SFTTrainer"}
    name = wanted[recorder.options.front_end]
    yield equal("driven by", name if name in class_names(recorder.front) else type(recorder.front).__name__, name)
    if name == "Accelerator":
        held = [each.optimizer for each in recorder.front._optimizers]  # noqa: SLF001 - no public way
        yield equal(
            "the optimiser is in accelerate's hands", any(each is recorder.optimiser for each in held), bound=True
        )
    if name.endswith("Trainer"):
        yield equal("steps that the trainer counted", recorder.front.state.global_step, tiny.STEPS)


def loop(recorder: EngagementRecorder) -> Iterator[Check]:
    """Check the passes of the last layer: one per evaluation and one per generated token."""
    passes = list(recorder.passes.values())[-1] if recorder.passes else []
    between = {"plain": 0, "eval": 1, "generate": tiny.NEW_TOKENS}[recorder.options.loop]
    yield equal("evaluation passes", sum(not training for training, _ in passes), between * (recorder.steps - 1))
