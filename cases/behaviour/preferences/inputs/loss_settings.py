"""Settings of DPO's losses together, and prompts of a single token, against the papers.

The batches have no column of padding alone, which trl 0.12.1 confuses with a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import objectives, pair_losses, pair_objectives, preference
from cases.behaviour.preferences.preference import BETA, FLIPPED, GROUP, Scores, each
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

SHARE = 0.7  # of the likelihood beside the preference loss
TAIL = 0.4  # ld_alpha
GENTLE = 0.02  # a learning rate for steep losses
SHORT = ((0, 7, 3), (0, 3, 5), (0, 5, 6), (0, 6, 4), (0, 8, 2), (0, 2, 4), (0, 4, 7), (0, 5, 1))


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_label_smoothing",))
def dpo_smoothed_labels(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's label_smoothing mixes the losses of both labels, by little and by much."""
    for smoothing in (FLIPPED, 0.4):

        def loss(row: Scores, share: float = smoothing) -> Any:
            return objectives.conservative_dpo(row.margin, BETA, share)

        yield from pair_losses.compared(ctx, each(loss), loss_type="sigmoid", label_smoothing=smoothing)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_rpo_alpha",))
def dpo_likelihood_beside_losses(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's rpo_alpha adds the likelihood of the chosen tokens to whatever loss_type is chosen.

    Equation 1 of https://arxiv.org/abs/2404.19733, where the prompt is no part of the likelihood.
    """
    losses: dict[str, Callable[[Scores], Any]] = {
        "sigmoid": preference.sigmoid,
        "hinge": lambda row: objectives.hinge(row.margin, BETA),
        "apo_zero": lambda row: pair_objectives.apo_zero(row.chosen_ratio, row.rejected_ratio, BETA),
    }
    for name, loss in losses.items():

        def both(rows: list[Scores], loss: Callable[[Scores], Any] = loss) -> Any:
            return each(loss)(rows) + SHARE * preference.chosen_nll(rows)

        yield from pair_losses.compared(ctx, both, loss_type=name, rpo_alpha=SHARE)


def of_policy(loss: Callable[..., Any]) -> preference.OfBatch:
    """A loss of both ratios to a reference that is equally sure of every completion."""
    return each(lambda row: loss(row.chosen.sum(), row.rejected.sum(), BETA))


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_reference_free",))
def dpo_reference_free_losses(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's reference_free leaves the reference out of losses of margins and of single ratios."""
    losses: dict[str, Callable[..., Any]] = {
        "sigmoid": lambda chosen, rejected, beta: objectives.dpo(chosen - rejected, beta),
        "hinge": lambda chosen, rejected, beta: objectives.hinge(chosen - rejected, beta),
        "apo_zero": pair_objectives.apo_zero,
        "apo_down": pair_objectives.apo_down,
    }
    for name, loss in losses.items():
        yield from pair_losses.compared(ctx, of_policy(loss), loss_type=name, reference_free=True, logged=False)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_reference_free",))
def dpo_reference_free_divergences(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's reference_free leaves the reference out of the rewards of other divergences, too."""

    def with_reward(reward: Callable[[Any], Any]) -> preference.OfBatch:
        return each(lambda row: objectives.dpo(reward(row.chosen.sum()) - reward(row.rejected.sum()), BETA))

    more: dict[str, Any] = {"reference_free": True, "logged": False, "rate": GENTLE}
    loss = with_reward(pair_objectives.jensen_shannon)
    yield from pair_losses.compared(ctx, loss, f_divergence_type="js_divergence", **more)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_reference_free",))
def dpo_reference_free_of_ratios(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's reference_free leaves the reference out of nca_pair and sppo_hard, too.

    The documentation: "we ignore the provided reference model and implicitly use a reference model that assigns equal
    probability to all responses". trl 0.12 subtracts the reference in these losses.
    """
    for name, loss in {"nca_pair": pair_objectives.nca, "sppo_hard": pair_objectives.sppo_hard}.items():
        more: dict[str, Any] = {"reference_free": True, "logged": False, "rate": GENTLE}
        yield from pair_losses.compared(ctx, of_policy(loss), loss_type=name, **more)


@call(GROUP, phase=Phase.FORWARD)
def dpo_prompts_of_one_token(ctx: Context) -> Iterator[Check]:
    """DPOTrainer learns every token of a completion whose prompt is a single token.

    The first learned token is then the first that a model predicts at all.
    """
    yield from preference.compared(ctx, each(preference.sigmoid), rows=preference.pairs(SHORT))


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_ld_alpha",))
def dpo_ld_alpha_of_short_prompts(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's ld_alpha counts the tokens of a completion from its first, also behind a prompt of a single token.

    As in dpo_ld_alpha, with both policies.
    """

    def shortened(row: Scores) -> Any:
        common = min(len(row.chosen), len(row.rejected))
        chosen, rejected, before, after = (
            part[:common].sum() + TAIL * part[common:].sum()
            for part in (row.chosen, row.rejected, row.reference_chosen, row.reference_rejected)
        )
        return objectives.dpo(chosen - before - rejected + after, BETA)

    yield from preference.compared(ctx, each(shortened), rows=preference.pairs(SHORT), logged=False, ld_alpha=TAIL)
