"""DPOTrainer against the losses of the papers: what one step computes and logs, and two steps of training.

The rows are texts of different lengths, so a batch is padded. A completion ends with the end token, as TRL documents:
https://huggingface.co/docs/trl/dpo_trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients, jobs
from cases.behaviour.preferences import alignment, objectives, policies
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context

    OfBatch = Callable[["list[Scores]"], Any]

GROUP = "Preference losses"
LENGTHS = ((5, 4, 3), (2, 7, 8), (7, 2, 6), (3, 5, 1), (4, 3, 5), (6, 6, 2), (1, 8, 4), (8, 2, 7))
BETA = 0.3
ALPHA = 0.7  # of the likelihood beside the preference loss
FLIPPED = 0.1  # the share of wrong labels
TUNED = 1.25  # a factor on the weights of a policy that differs from its reference
GENTLE = 0.01  # a learning rate for whole weights
ADAPTED = Options()  # LoRA with the suite's start values
FULL = Options().but(method="full")
QUANTISED = Options().but(quant="nf4")


@dataclass(frozen=True)
class PreferencePair:
    """A row of a preference dataset: token ids. Completions lack the end token, which trainers add.

    A prompt begins with the start token, as after a chat template. Some versions put one before other prompts. Of more
    than ``longest`` tokens, the first or, with ``keep_end``, the last are kept.
    """

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    longest: int = 1024
    keep_end: bool = False

    @property
    def sequences(self) -> list[tuple[list[int], list[int]]]:
        """The prompt and what is learned, for the chosen and the rejected completion."""
        whole = [[*self.prompt, *completion, tiny.END] for completion in (self.chosen, self.rejected)]
        firsts = [max(0, len(ids) - self.longest) if self.keep_end else 0 for ids in whole]
        kept = [
            (ids[first : first + self.longest], len(self.prompt) - first)
            for ids, first in zip(whole, firsts, strict=True)
        ]
        return [(ids[:begin], ids[begin:]) for ids, begin in kept]


def pairs(lengths: Sequence[Sequence[int]] = LENGTHS, **cut: Any) -> list[PreferencePair]:
    """Rows with prompts and completions of these lengths."""
    texts = policies.texts(lengths)
    return [PreferencePair([tiny.START, *prompt], chosen, rejected, **cut) for prompt, chosen, rejected in texts]


def columns(rows: list[PreferencePair]) -> Any:
    names = ("prompt", "chosen", "rejected")
    return ingredients.dataset(**{name: [policies.text(getattr(row, name)) for row in rows] for name in names})


@dataclass(frozen=True)
class Scores:
    """What a loss sees of a pair: log p of the tokens of both completions by the policy and the reference."""

    chosen: Any
    rejected: Any
    reference_chosen: Any
    reference_rejected: Any

    @property
    def chosen_ratio(self) -> Any:
        return self.chosen.sum() - self.reference_chosen.sum()

    @property
    def rejected_ratio(self) -> Any:
        return self.rejected.sum() - self.reference_rejected.sum()

    @property
    def margin(self) -> Any:
        return self.chosen_ratio - self.rejected_ratio

    @property
    def mean_margin(self) -> Any:
        """The margin of ratios per token."""
        return self.chosen_ratio / len(self.chosen) - self.rejected_ratio / len(self.rejected)


def scores(both: policies.Policies, row: PreferencePair) -> Scores:
    learned = [policies.log_probabilities(both.policy, *each) for each in row.sequences]
    frozen = [policies.frozen_log_probabilities(both.reference, *each) for each in row.sequences]
    return Scores(*learned, *frozen)


def loss_of(both: policies.Policies, of_batch: OfBatch, *, logged: bool = True) -> policies.Loss:
    """The mean loss of the ranks' batches, and the metrics that TRL documents."""

    def loss(batches: list[list[PreferencePair]]) -> tuple[Any, policies.Metrics]:
        found = [[scores(both, row) for row in batch] for batch in batches]
        every = [row for batch in found for row in batch]
        return policies.mean([of_batch(batch) for batch in found]), metrics(every) if logged else {}

    return loss


def metrics(rows: list[Scores]) -> policies.Metrics:
    """https://huggingface.co/docs/trl/dpo_trainer#logged-metrics."""
    margins = [BETA * row.margin.item() for row in rows]
    return {
        "rewards/chosen": [BETA * row.chosen_ratio.item() for row in rows],
        "rewards/rejected": [BETA * row.rejected_ratio.item() for row in rows],
        "rewards/margins": margins,
        "rewards/accuracies": [float(margin > 0) for margin in margins],
        "logps/chosen": [row.chosen.sum().item() for row in rows],
        "logps/rejected": [row.rejected.sum().item() for row in rows],
    }


def each(loss: Callable[[Scores], Any]) -> OfBatch:
    """The mean of a loss over the rows."""
    return lambda rows: policies.mean([loss(row) for row in rows])


def sigmoid(row: Scores) -> Any:
    return objectives.dpo(row.margin, BETA)


def chosen_nll(rows: list[Scores]) -> Any:
    """The mean of -log p over the tokens of the chosen completions of a batch."""
    return -sum(row.chosen.sum() for row in rows) / sum(len(row.chosen) for row in rows)


def trainer(ctx: Context, model: Any, rows: list[PreferencePair] | None = None, size: int = 4, **chosen: Any) -> Any:
    more = {name: chosen.pop(name) for name in ("ref_model", "peft_config", "eval_dataset") if name in chosen}
    settings = {"beta": BETA, "per_device_train_batch_size": size, **chosen}
    return alignment.create(ctx, "DPO", settings, model=model, train_dataset=columns(rows or pairs()), **more)


def adapted_trainer(ctx: Context, model: Any = None, **chosen: Any) -> Any:
    """DPOTrainer with a LoRA adapter, which is disabled for the reference."""
    peft_config = alignment.lora(init_lora_weights=False)  # not without effect even when the trainer is created
    return alignment.fill(trainer(ctx, model or ingredients.base(ctx), peft_config=peft_config, **chosen))


def tuned(ctx: Context) -> tuple[policies.Policies, Any]:
    """A policy of whole weights that differs from its reference, and the same model for a trainer."""
    import torch

    both = policies.policies(ctx.cache, FULL)
    model = ingredients.base(ctx)
    with torch.no_grad():
        for name, tensor in [*both.trained.items(), *tiny.named(model)]:
            if "layers" in name and "norm" not in name:
                tensor.mul_(TUNED)
    return both, model


def compared(
    ctx: Context,
    of_batch: OfBatch,
    *,
    rows: list[PreferencePair] | None = None,
    size: int = 4,
    accumulation: int = 1,
    logged: bool = True,
    rate: float = alignment.RATE,
    **chosen: Any,
) -> Iterator[Check]:
    """Train two steps with an adapter, and compare."""
    both = policies.policies(ctx.cache, ADAPTED)
    steps = policies.dealt(rows or pairs(), size, ctx.place.world_size, accumulation)
    expected = policies.train(both.trained, steps, loss_of(both, of_batch, logged=logged), rate)
    chosen = {"learning_rate": rate, **chosen}
    made = adapted_trainer(ctx, rows=rows, size=size, gradient_accumulation_steps=accumulation, **chosen)
    yield from alignment.as_defined(alignment.trained(made), expected)


@call(GROUP, phase=Phase.FORWARD)
def dpo_sigmoid(ctx: Context) -> Iterator[Check]:
    """DPOTrainer with LoRA computes the loss of the DPO paper against the model without its adapter.

    Equation 7 of https://arxiv.org/abs/2305.18290.
    """
    yield from compared(ctx, each(sigmoid), loss_type="sigmoid")


@call(GROUP, phase=Phase.FORWARD)
def dpo_ipo(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's ipo is the squared distance of the mean log ratio per token from 1 / (2 beta).

    Equation 17 of https://arxiv.org/abs/2310.12036, per token as TRL documents. Versions log rewards per token or sums.
    """
    loss = each(lambda row: objectives.ipo(row.mean_margin, BETA))
    yield from compared(ctx, loss, loss_type="ipo", logged=False)


@call(GROUP, phase=Phase.FORWARD)
def dpo_hinge(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's hinge is the loss of https://arxiv.org/abs/2309.06657 with DPO's reward."""
    yield from compared(ctx, each(lambda row: objectives.hinge(row.margin, BETA)), loss_type="hinge")


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_robust",))
def dpo_robust(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's robust is the unbiased loss under flipped labels of https://arxiv.org/abs/2403.00409."""
    loss = each(lambda row: objectives.robust_dpo(row.margin, BETA, FLIPPED))
    yield from compared(ctx, loss, loss_type="robust", label_smoothing=FLIPPED)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_label_smoothing",))
def dpo_label_smoothing(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's label_smoothing mixes the losses of both labels, as in conservative DPO."""
    loss = each(lambda row: objectives.conservative_dpo(row.margin, BETA, FLIPPED))
    yield from compared(ctx, loss, loss_type="sigmoid", label_smoothing=FLIPPED)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_reference_free",))
def dpo_reference_free(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's reference_free takes a reference that is equally sure of every completion."""
    loss = each(lambda row: objectives.dpo(row.chosen.sum() - row.rejected.sum(), BETA))
    yield from compared(ctx, loss, reference_free=True, logged=False)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_rpo_alpha",))
def dpo_rpo_alpha(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's rpo_alpha adds the mean negative log likelihood of the chosen completions' tokens.

    Equation 1 of https://arxiv.org/abs/2404.19733, where the prompt is no part of the likelihood.
    """
    yield from compared(ctx, lambda rows: each(sigmoid)(rows) + ALPHA * chosen_nll(rows), rpo_alpha=ALPHA)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_loss_weights",))
def dpo_weighted_losses(ctx: Context) -> Iterator[Check]:
    """DPOTrainer adds the losses of a list with their weights; sft is the likelihood of the chosen tokens."""
    types: dict[str, Any] = {"loss_type": ["sigmoid", "sft"], "loss_weights": [0.5, ALPHA]}
    yield from compared(ctx, lambda rows: 0.5 * each(sigmoid)(rows) + ALPHA * chosen_nll(rows), **types)


@call(GROUP, phase=Phase.BACKWARD)
def dpo_accumulation(ctx: Context) -> Iterator[Check]:
    """DPOTrainer with gradient_accumulation_steps=2 takes the mean over the pairs, whatever their lengths."""
    yield from compared(ctx, each(sigmoid), size=2, accumulation=2)


@call(GROUP, phase=Phase.FORWARD)
def dpo_precomputed_reference(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's precompute_ref_log_probs gives the loss that it computes without it."""
    yield from compared(ctx, each(sigmoid), precompute_ref_log_probs=True, remove_unused_columns=True)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def dpo_ddp(ctx: Context) -> Iterator[Check]:
    """DPOTrainer on two ranks trains on the mean over the pairs of both, and logs their mean."""
    yield from compared(ctx, each(sigmoid), size=2, ddp_find_unused_parameters=False)


@call(GROUP, phase=Phase.OPTIMIZER)
def dpo_reference_model(ctx: Context) -> Iterator[Check]:
    """DPOTrainer trains every weight against the model given as ref_model, which stays as it is."""
    both, model = tuned(ctx)
    expected = policies.train(both.trained, policies.dealt(pairs(), 4), loss_of(both, each(sigmoid)), GENTLE)
    made = trainer(ctx, model, ref_model=ingredients.base(ctx), learning_rate=GENTLE)
    yield from alignment.as_defined(alignment.trained(made), expected)


@call(GROUP, phase=Phase.FORWARD, requires=("4bit", "4bit_loading"))
def dpo_quantised(ctx: Context) -> Iterator[Check]:
    """DPOTrainer on a 4-bit base computes both policies with the dequantised weights.

    Versions cast the adapter to bfloat16, which is undone.
    """
    both = policies.policies(ctx.cache, QUANTISED)
    expected = policies.train(both.trained, policies.dealt(pairs(), 4), loss_of(both, each(sigmoid)), alignment.RATE)
    made = adapted_trainer(ctx, jobs.base(ctx, quant="nf4"))
    for parameter in jobs.trained_parameters(made.model):
        parameter.data = parameter.data.float()
    yield from alignment.as_defined(alignment.trained(alignment.fill(made)), expected)


@call(GROUP, phase=Phase.FORWARD)
def dpo_evaluation(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's evaluation gives the mean over the pairs, also if the last batch is smaller."""
    both = policies.policies(ctx.cache, ADAPTED)
    rows = pairs(LENGTHS[:5])
    loss, expected = loss_of(both, each(sigmoid))([rows])
    made = adapted_trainer(ctx, eval_dataset=columns(rows), per_device_eval_batch_size=2)
    yield from alignment.evaluated(made, {"loss": loss.item(), **policies.pooled([expected])})
