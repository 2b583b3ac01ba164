"""Evaluations of TRL's trainers: the loss and every metric of one batch, by the reference, without any training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import (
    alignment,
    kto,
    logged_metrics,
    objectives,
    odds_ratios,
    policies,
    preference,
    reward,
    sft_losses,
)
from cases.behaviour.preferences.inputs.row_forms import known
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Metrics of TRL"
WHOLE: dict[str, Any] = {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 8}
PACKED = 16  # tokens of a packed row


def entries_of(made: Any) -> dict[str, float]:
    """The metrics that an evaluation returns or logs."""
    found = made.evaluate()
    for entry in made.state.log_history:
        found = {**entry, **found}
    return dict(found)


def evaluated(made: Any, kind: str, loss: Any, metrics: policies.Metrics, title: str = "") -> Iterator[Check]:
    """Compare an evaluation; metrics that a version does not log are left out. ``title`` names a setting."""
    wanted = {"loss": float(loss), **policies.pooled([metrics])}
    found = entries_of(made)
    for name, value in wanted.items():
        if name == "loss" or alignment.source_mentions(kind, name):
            off = alignment.off(found.get(f"eval_{name}", float("inf")), value)
            yield at_most(f"evaluated {name} off, {title or kind}", off, logged_metrics.SAME)


@call(GROUP, phase=Phase.FORWARD)
def dpo_evaluated_metrics(ctx: Context) -> Iterator[Check]:
    """DPOTrainer evaluates its loss and metrics of each row, or over its tokens, and averages batches of one row."""
    both, rows = policies.policies(ctx.cache, Options()), preference.pairs()
    each = [logged_metrics.dpo_loss(both)([[row]]) for row in rows]
    loss = policies.mean([float(value) for value, _ in each])
    metrics = {name: [policies.mean(of_row[name]) for _, of_row in each] for name in each[0][1]}
    if not alignment.source_mentions("DPO", '"entropy"'):  # such versions take the mean of logits over padding too
        metrics = {name: of_rows for name, of_rows in metrics.items() if name.startswith(("rewards", "logps"))}
    made = preference.adapted_trainer(ctx, eval_dataset=preference.columns(rows), per_device_eval_batch_size=1)
    yield from evaluated(made, "DPO", loss, metrics)


@call(GROUP, phase=Phase.FORWARD)
def kto_evaluated_metrics(ctx: Context) -> Iterator[Check]:
    """KTOTrainer evaluates its loss, KL estimate and metrics over the rows, or the tokens, of each kind of a batch."""
    both, rows = policies.policies(ctx.cache, Options()), kto.rows()
    loss, metrics = logged_metrics.kto_loss(both)([kto.mismatched(rows, 8, 1)])
    if not alignment.source_mentions("KTO", '"entropy"'):
        metrics = {name: each for name, each in metrics.items() if not name.startswith("logits")}
    settings = {"beta": kto.BETA, "desirable_weight": kto.GOOD, "undesirable_weight": kto.BAD, **WHOLE}
    data = kto.columns(rows)
    made = alignment.create(ctx, "KTO", settings, train_dataset=data, eval_dataset=data, **alignment.fresh(ctx))
    yield from evaluated(alignment.fill(made), "KTO", loss, metrics)


@call(GROUP, phase=Phase.FORWARD, requires=("orpo", "cpo"))
def odds_evaluated_metrics(ctx: Context) -> Iterator[Check]:
    """CPOTrainer and ORPOTrainer evaluate their losses, log p, rewards and the likelihood of chosen answers.

    With cpo_alpha=0, CPOTrainer computes no likelihood and logs 0.
    """
    rows = preference.pairs(odds_ratios.LENGTHS)
    data = preference.columns(rows)
    kinds: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "ORPO": ("ORPO", odds_ratios.odds_ratio, {"weight": 1.0, "is_mean": True, "prompts": True}),
        "CPO": ("CPO", odds_ratios.reference_free, {"weight": odds_ratios.LIKELY, "is_mean": False}),
        "CPO alone": ("CPO", odds_ratios.reference_free, {"weight": 0.0, "is_mean": False}),
    }
    for name, (kind, of_pair, shape) in kinds.items():
        both = policies.policies(ctx.cache, Options())
        loss, metrics = odds_ratios.loss_of(both, of_pair, **shape)([rows])
        learned = [odds_ratios.learned(both, row) for row in rows]
        texts = (
            [odds_ratios.of_prompt_too(both, row) for row in rows] if kind == "ORPO" else [one for one, _ in learned]
        )
        metrics["nll_loss"] = [float(odds_ratios.likelihood(texts)) if name != "CPO alone" else 0.0]
        for place, role in enumerate(("chosen", "rejected")):
            values = [pair[place] for pair in learned]
            metrics[f"logps/{role}"] = [float(each.mean() if shape["is_mean"] else each.sum()) for each in values]
        settings = {"beta": preference.BETA, **WHOLE, **({"cpo_alpha": shape["weight"]} if kind == "CPO" else {})}
        made = alignment.create(ctx, kind, settings, train_dataset=data, eval_dataset=data, **alignment.fresh(ctx))
        yield from evaluated(alignment.fill(made), kind, loss, metrics, name)


@call(GROUP, phase=Phase.FORWARD)
def reward_evaluated_metrics(ctx: Context) -> Iterator[Check]:
    """RewardTrainer evaluates its loss and metrics over the pairs of a batch."""
    both, rows = reward.reward_policies(ctx), reward.pairs()
    loss, metrics = reward.loss_of(both, reward.plain, logged=alignment.source_mentions("Reward", '"mean_reward"'))(
        [rows]
    )
    data = reward.columns(rows, margins=False)
    made = reward.trainer(ctx, size=8, margins=False, eval_dataset=data, per_device_eval_batch_size=8)
    yield from evaluated(made, "Reward", loss, metrics)


@call(GROUP, phase=Phase.FORWARD)
def sft_evaluated_metrics(ctx: Context) -> Iterator[Check]:
    """SFTTrainer evaluates its loss and metrics over all tokens of a batch but the first of each row."""
    both = policies.policies(ctx.cache, Options())
    rows = [sft_losses.MaskedRow(ids, [False] + [True] * (len(ids) - 1)) for ids in sft_losses.documents()]
    loss, metrics = logged_metrics.sft_loss(both)([rows])
    data = ingredients.dataset(text=[policies.text(row.ids).strip() for row in rows])
    given = {**WHOLE, "dataset_text_field": "text", "remove_unused_columns": True}
    made = alignment.create(ctx, "SFT", given, train_dataset=data, eval_dataset=data, **alignment.fresh(ctx))
    yield from evaluated(alignment.fill(made), "SFT", loss, metrics)


def packed_trainer(ctx: Context, packed: bool | None) -> Any:  # noqa: FBT001 - eval_packing, which has three values
    """An SFTTrainer that packs its rows for training."""
    data = ingredients.dataset(text=[policies.text(ids).strip() for ids in sft_losses.documents()])
    length = "max_length" if "max_length" in alignment.options_of("SFT") else "max_seq_length"
    given = {**WHOLE, "dataset_text_field": "text", "remove_unused_columns": True, "packing": True}
    given |= {"eval_packing": packed, length: PACKED}
    return alignment.create(ctx, "SFT", given, train_dataset=data, eval_dataset=data, **alignment.fresh(ctx))


@call(GROUP, phase=Phase.FORWARD)
def sft_packs_for_training_alone(ctx: Context) -> Iterator[Check]:
    """With eval_packing=False, SFTTrainer packs the rows of the training alone; without, those of evaluation too."""
    rows = len(sft_losses.DOCUMENTS)
    for packed in (False, None):
        made = packed_trainer(ctx, packed)
        yield equal(f"packed for training, eval_packing={packed}", len(made.train_dataset) < rows, bound=True)
        yield equal(f"packed for evaluation, eval_packing={packed}", len(made.eval_dataset) < rows, packed is None)


@call(GROUP, phase=Phase.FORWARD)
def sft_evaluates_unpacked_rows(ctx: Context) -> Iterator[Check]:
    """With packing=True and eval_packing=False, SFTTrainer evaluates the loss of each whole row."""
    both = policies.policies(ctx.cache, Options())
    rows = [sft_losses.MaskedRow(ids, [False] + [True] * (len(ids) - 1)) for ids in sft_losses.documents()]
    loss, _ = logged_metrics.sft_loss(both)([rows])
    found = alignment.fill(packed_trainer(ctx, packed=False)).evaluate()
    off = alignment.off(found.get("eval_loss", float("inf")), float(loss))
    yield at_most("loss of unpacked rows off", off, logged_metrics.SAME)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_sigmoid_norm",))
def dpo_norm_of_single_tokens(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's sigmoid_norm takes the mean log ratio per token, also of answers with nothing but their end."""
    both = policies.policies(ctx.cache, Options())
    rows = preference.pairs(((5, 0, 3), (2, 3, 0), (4, 0, 0), (3, 2, 5)))
    found = [preference.scores(both, row) for row in rows]
    loss = policies.mean([objectives.dpo(each.mean_margin, preference.BETA) for each in found])
    given = {"loss_type": "sigmoid_norm", "eval_dataset": preference.columns(rows), "per_device_eval_batch_size": 4}
    made = preference.adapted_trainer(ctx, rows=rows, **given)
    yield equal("tokens of the shortest answer", min(len(each.chosen) for each in found), 1)
    yield from evaluated(made, "DPO", loss, {})


@call(GROUP, phase=Phase.FORWARD)
def equal_rewards_are_no_wins(ctx: Context) -> Iterator[Check]:
    """Pairs whose rewards are equal have a margin of 0 and count as no win in the logged accuracy.

    With beta=0 the reward of every answer is 0.
    """
    data, given = preference.columns(preference.pairs()), {"beta": 0.0, "per_device_eval_batch_size": 8}
    for kind in known(("DPO", "CPO", "ORPO")):
        made = alignment.create(ctx, kind, given, train_dataset=data, eval_dataset=data, **alignment.fresh(ctx))
        found = entries_of(alignment.fill(made))
        for name in ("chosen", "rejected", "margins", "accuracies"):
            yield equal(f"rewards/{name} with beta=0, {kind}", found.get(f"eval_rewards/{name}", -1.0), 0.0)


@call(GROUP, phase=Phase.FORWARD, requires=("reward_metrics",))
def equal_rewards_of_texts_are_no_wins(ctx: Context) -> Iterator[Check]:
    """RewardTrainer's accuracy is how often the chosen reward is greater: 0 if a head of zeros gives rewards of 0.

    Earlier versions count equal rewards as wins, and warn that the accuracy can be misleading.
    """
    pairs = reward.columns(reward.pairs(), margins=False)
    made = reward.trainer(ctx, size=8, margins=False, eval_dataset=pairs, per_device_eval_batch_size=8)
    for name, parameter in made.model.named_parameters():
        if "score" in name:
            parameter.data.zero_()
    yield equal("accuracy of rewards that are 0", entries_of(made).get("eval_accuracy", -1.0), 0.0)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_entropy",))
def dpo_batches_without_answers(ctx: Context) -> Iterator[Check]:
    """If truncation leaves nothing of all answers of a batch, its loss is log 2 and each metric over tokens is 0.

    Rows are cut as a batch is made: the data set leaves out only those that it knows to have no answer.
    """
    data = preference.columns(preference.pairs())
    made = preference.adapted_trainer(ctx, eval_dataset=data, per_device_eval_batch_size=8)
    made.data_collator.max_length = min(len(row.prompt) for row in preference.pairs())
    batch = next(iter(made.get_eval_dataloader()))
    yield equal("tokens of answers", int(batch["completion_mask"].sum()), 0)
    found = entries_of(made)
    yield at_most("loss off log 2", abs(found["eval_loss"] - math.log(2)), logged_metrics.SAME)
    names = ("entropy", "mean_token_accuracy", "logits/chosen", "logits/rejected", "rewards/margins", "logps/chosen")
    for name in names:
        yield equal(f"{name} without answers", found.get(f"eval_{name}", -1.0), 0.0)
