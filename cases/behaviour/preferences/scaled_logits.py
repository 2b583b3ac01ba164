"""TRL's trainers on models that cap or scale their logits: the loss is that of the logits with which they generate.

Gemma 2 caps logits by c tanh(x / c) (https://arxiv.org/abs/2408.00118, section 2.2), Cohere multiplies them and Granite
divides them (``logit_scale`` and ``logits_scaling`` of their configurations). Trainers that compute log p without the
model's own head must do so too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients, models
from cases.apply import build
from cases.behaviour.preferences import alignment, grpo, policies, preference, sft_losses
from cases.behaviour.preferences.grpo import Definition
from cases.model import architectures, tiny
from cases.reference import twin
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Capped and scaled logits"
GEMMA = Options().but(model="gemma", attn_implementation="eager")
COMPLETE = [False] + [True] * (tiny.LENGTH - 1)
NEAR = 1e-4  # of a loss in float32
SMALL = {
    "vocab_size": tiny.VOCABULARY,
    "hidden_size": tiny.HIDDEN,
    "intermediate_size": 2 * tiny.HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": tiny.END,
    "tie_word_embeddings": False,
}


def folder(ctx: Context) -> Any:
    return architectures.checkpoint(GEMMA, ctx.cache)


def gemma(ctx: Context) -> Any:
    return build.load_from(folder(ctx), GEMMA.but(method="full"), ctx.place)


def gemma_policies(ctx: Context) -> policies.Policies:
    policy, reference = (twin.network(GEMMA, folder(ctx)) for _ in range(2))
    return policies.Policies(policy, reference, twin.trained_tensors(policy, GEMMA))


def tokenised(rows: list[list[int]]) -> Any:
    """A data set of rows without padding, as a tokeniser returns them."""
    return ingredients.dataset(input_ids=rows, attention_mask=[[1] * len(ids) for ids in rows])


@call(GROUP, phase=Phase.FORWARD, requires=("model_gemma", "sft_tokenised"))
def sft_capped_logits(ctx: Context) -> Iterator[Check]:
    """SFTTrainer trains Gemma 2 on its capped logits."""
    rows = [
        sft_losses.MaskedRow(ids.tolist(), COMPLETE) for batch in range(2) for ids in tiny.batch(batch).clamp_min(4)
    ]
    both = gemma_policies(ctx)
    sums = sft_losses.loss_of(both, sft_losses.negative)

    def mean_loss(batch: list[sft_losses.MaskedRow]) -> tuple[Any, policies.Metrics]:
        total, number = sums(batch)
        return total / number, {}

    size = len(rows) // 2
    expected = policies.train(both.trained, [[rows[:size]], [rows[size:]]], mean_loss, alignment.RATE)
    data = tokenised([row.ids for row in rows])
    settings = {"remove_unused_columns": True, "per_device_train_batch_size": size}
    more = {"model": gemma(ctx), "peft_config": alignment.lora(), "train_dataset": data}
    yield from alignment.as_defined(
        alignment.trained(alignment.fill(alignment.create(ctx, "SFT", settings, **more))), expected
    )


@call(GROUP, phase=Phase.FORWARD, requires=("model_gemma",))
def dpo_capped_logits(ctx: Context) -> Iterator[Check]:
    """DPOTrainer compares completions by Gemma 2's capped logits, of policy and reference."""
    both = gemma_policies(ctx)
    steps = policies.dealt(preference.pairs(), 4)
    loss = preference.loss_of(both, preference.each(preference.sigmoid))
    expected = policies.train(both.trained, steps, loss, alignment.RATE)
    made = preference.adapted_trainer(ctx, gemma(ctx))
    yield from alignment.as_defined(alignment.trained(made), expected)


def rolled_out(ctx: Context, kind_of_definition: Definition, **chosen: Any) -> Iterator[Check]:
    adapted = models.adapted(gemma(ctx))
    yield from grpo.compared(
        ctx, kind_of_definition, logged=("reward",), both=gemma_policies(ctx), model=adapted, **chosen
    )


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_loss_type", "model_gemma"))
def grpo_capped_logits(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer takes log p of rollouts from Gemma 2's capped logits."""
    yield from rolled_out(ctx, Definition(grpo.by_row))


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_loss_type", "grpo_temperature", "model_gemma"))
def grpo_capped_logits_at_temperature(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer caps Gemma 2's logits before it divides them by the temperature, as sampling does."""
    yield from rolled_out(ctx, Definition(grpo.by_row, temperature=0.7))


def own_loss(model: Any, ids: Any) -> Any:
    """The mean cross entropy by the logits that the model returns, in float64."""
    import torch

    with torch.no_grad():
        logits = model.eval()(input_ids=ids).logits.double()
    return -logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).mean()


def trained_by_own_logits(ctx: Context, config: str, setting: str, values: tuple[float, float]) -> Iterator[Check]:
    """Compare the first logged loss of SFTTrainer with the loss by the model's logits, for two values of a setting."""
    import torch
    import transformers

    rows = tiny.batch(0).clamp_min(4)
    found = []
    for value in values:
        torch.manual_seed(0)
        made = getattr(transformers, config)(**{**SMALL, setting: value})
        model = transformers.AutoModelForCausalLM.from_config(made)
        tiny.fill(model)
        model.to(ctx.place.device)
        wanted = float(own_loss(model, rows.to(ctx.place.device)))
        data = tokenised(rows.tolist())
        settings = {"remove_unused_columns": True, "per_device_train_batch_size": len(rows), "max_steps": 1}
        trainer = alignment.create(ctx, "SFT", settings, model=model, train_dataset=data)
        trainer.train()
        found.append(wanted)
        yield at_most(f"loss off, {setting} {value}", abs(trainer.micro_losses[0] - wanted), NEAR)
    yield at_least("what the setting changes", abs(found[0] - found[1]), 100 * NEAR)


@call(GROUP, phase=Phase.FORWARD, requires=("cohere", "sft_tokenised"))
def sft_multiplied_logits(ctx: Context) -> Iterator[Check]:
    """SFTTrainer trains Cohere's models on the logits that logit_scale multiplied."""
    yield from trained_by_own_logits(ctx, "CohereConfig", "logit_scale", (0.0625, 2.0))


@call(GROUP, phase=Phase.FORWARD, requires=("granite", "sft_tokenised"))
def sft_divided_logits(ctx: Context) -> Iterator[Check]:
    """SFTTrainer trains Granite's models on the logits that logits_scaling divided."""
    yield from trained_by_own_logits(ctx, "GraniteConfig", "logits_scaling", (8.0, 0.5))
