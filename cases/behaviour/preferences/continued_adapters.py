"""TRL's trainers on a model that has a trained adapter already: they continue it, and compare with it as it was.

https://huggingface.co/docs/trl/dpo_trainer: the adapter is copied under the name "ref". Earlier versions take the
model without adapters as the reference unless ``ref_adapter_name`` names one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, grpo, kto, policies, preference, rloo, sft_losses
from cases.model import adapter_start, tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Preference losses"
LENGTHS = ((8, 7, 3), (2, 6, 5), (7, 2, 6), (3, 5, 1), (8, 4, 8), (6, 6, 2), (1, 8, 4), (7, 2, 7))


def adapted(ctx: Context) -> Any:
    """A model with an adapter that has effect."""
    from peft import get_peft_model

    model = get_peft_model(ingredients.base(ctx), alignment.lora())
    adapter_start.start(model, Options())
    return model


def continued_dpo(ctx: Context, made: Any) -> Iterator[Check]:
    """Two steps: the first loss is log 2, as policy and reference agree, and the second starts from there."""
    both, rows = policies.continued_policies(ctx.cache, Options()), preference.pairs(LENGTHS)
    loss = preference.loss_of(both, preference.each(preference.sigmoid))
    expected = policies.train(both.trained, policies.dealt(rows, 4), loss, alignment.RATE)
    found = alignment.trained(made)
    found.after = of_adapter(found.after, "default")
    found.gradients = [of_adapter(each, "default") for each in found.gradients]
    yield at_most("first loss off log 2", abs(found.losses[0] - math.log(2)), alignment.SAME)
    yield from alignment.as_defined(found, expected)


def of_adapter(tensors: dict[str, Any], name: str) -> dict[str, Any]:
    """The tensors of an adapter, under the names that the only adapter has."""
    return {key.replace(f".{name}", ""): tensor for key, tensor in tensors.items() if ".ref" not in key}


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_copied_adapter",))
def dpo_continued_adapter(ctx: Context) -> Iterator[Check]:
    """DPOTrainer continues an adapter against a copy of it: the first loss is log 2, and the copy stays."""
    made = preference.trainer(ctx, adapted(ctx), rows=preference.pairs(LENGTHS))
    before = reference_adapter(made)
    yield from continued_dpo(ctx, made)
    after = reference_adapter(made)
    yield equal("weights of the reference that changed", sum(not after[n].equal(t) for n, t in before.items()), 0)


def reference_adapter(made: Any) -> dict[str, Any]:
    return {name: p.detach().clone() for name, p in made.model.named_parameters() if ".ref." in name}


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_copied_adapter",))
def dpo_continued_adapter_precomputed(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's precompute_ref_log_probs takes the adapter as it was, if it continues one."""
    more: dict[str, Any] = {"precompute_ref_log_probs": True, "remove_unused_columns": True}
    made = preference.trainer(ctx, adapted(ctx), rows=preference.pairs(LENGTHS), **more)
    yield from continued_dpo(ctx, made)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_ref_adapter_name",))
def dpo_two_adapters(ctx: Context) -> Iterator[Check]:
    """DPOTrainer with model_adapter_name and ref_adapter_name trains one adapter against another.

    https://huggingface.co/docs/trl/v0.12.1/dpo_trainer, "Using option 3 - load the adapter twice".
    """
    import torch

    model = adapted(ctx)
    model.add_adapter("reference", alignment.lora())
    with torch.no_grad():
        tensors = dict(model.named_parameters())
        for name, tensor in tensors.items():
            if ".reference." in name:
                tensor.copy_(tensors[name.replace(".reference.", ".default.")])
    names: dict[str, Any] = {"model_adapter_name": "default", "ref_adapter_name": "reference"}
    yield from continued_dpo(ctx, preference.trainer(ctx, model, rows=preference.pairs(LENGTHS), **names))


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_copied_adapter",))
def kto_continued_adapter(ctx: Context) -> Iterator[Check]:
    """KTOTrainer continues an adapter against a copy of it, also in the KL estimate."""
    yield from kto.compared(ctx, size=4, model=adapted(ctx), both=policies.continued_policies(ctx.cache, Options()))


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "dpo_copied_adapter"))
def grpo_continued_adapter(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer with beta continues an adapter, and its divergence is from a copy of it."""
    both = policies.continued_policies(ctx.cache, Options())
    yield from grpo.compared(ctx, grpo.Definition(grpo.by_row, grpo.BETA), both=both, model=adapted(ctx))


@call(GROUP, phase=Phase.FORWARD, requires=("rloo", "dpo_copied_adapter"))
def rloo_continued_adapter(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer with beta continues an adapter, and its divergence is from a copy of it."""
    both = policies.continued_policies(ctx.cache, Options())
    yield from rloo.compared(ctx, rloo.LeaveOneOut(grpo.by_row, rloo.BETA), both=both, model=adapted(ctx))


@call("SFT losses", phase=Phase.FORWARD, requires=("sft_config",))
def sft_continued_adapter(ctx: Context) -> Iterator[Check]:
    """SFTTrainer continues the adapter of a model that has one, from its values, and trains nothing else."""
    rows = [[*ids, tiny.END] for ids, _ in policies.texts(sft_losses.LENGTHS)]
    learned = [sft_losses.MaskedRow(ids, [False] + [True] * (len(ids) - 1)) for ids in rows]
    data = ingredients.dataset(text=[policies.text(ids) for ids in rows])
    more: dict[str, Any] = {"per_device_train_batch_size": 4, "model": adapted(ctx)}
    yield from sft_losses.compared(ctx, [learned[:4], learned[4:]], data, **more)
