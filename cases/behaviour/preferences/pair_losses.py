"""DPOTrainer's less common losses and its variants of the reward, against the papers, on an adapter that differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, objectives, pair_objectives, policies, preference
from cases.behaviour.preferences.preference import ADAPTED, BETA, FLIPPED, GROUP, PreferencePair, Scores, each
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

# One row of each batch has its longest prompt and its longest completion, so that batches have no column of padding
# alone: trl 0.12.1 cuts off a token there, which the calls of other modules show.
LENGTHS = ((8, 7, 3), (2, 6, 5), (7, 2, 6), (3, 5, 1), (8, 4, 8), (6, 6, 2), (1, 8, 4), (7, 2, 7))
BRIEF = ((8, 7, 3), (2, 0, 5), *LENGTHS[2:7], (7, 2, 0))  # some completions are the end token alone
ALPHA = 0.7  # of the alpha divergence
TAU = 0.4  # of DiscoPOP; its default makes the blend a step
SMALL_RATE = 0.02  # for losses with steep gradients, whose steps magnify rounding
SHARE = 0.4  # of a completion's tokens beyond the other's length


def compared(ctx: Context, loss: preference.OfBatch, **chosen: Any) -> Iterator[Check]:
    yield from preference.compared(ctx, loss, rows=preference.pairs(LENGTHS), **chosen)


def of_ratios(loss: Callable[..., Any], *more: float) -> Callable[[list[Scores]], Any]:
    """The mean over the rows of a loss of both ratios."""
    return each(lambda row: loss(row.chosen_ratio, row.rejected_ratio, BETA, *more))


@call(GROUP, phase=Phase.FORWARD)
def dpo_exo_pair(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's exo_pair is the reverse divergence from labels that are smoothed by label_smoothing."""
    loss = each(lambda row: pair_objectives.exo(row.margin, BETA, FLIPPED))
    yield from compared(ctx, loss, loss_type="exo_pair", label_smoothing=FLIPPED)


@call(GROUP, phase=Phase.FORWARD)
def dpo_nca_pair(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's nca_pair raises the chosen completion's likelihood as well as its margin."""
    yield from compared(ctx, of_ratios(pair_objectives.nca), loss_type="nca_pair")


@call(GROUP, phase=Phase.FORWARD)
def dpo_bco_pair(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's bco_pair classifies rewards; versions with a running mean of all rewards subtract it first.

    Each batch counts once in the mean, as in equation 10 of https://arxiv.org/abs/2404.04656.
    """
    is_shifted = alignment.source_mentions("DPO", "self.running")
    means: list[float] = []

    def loss(rows: list[Scores]) -> Any:
        rewards = [BETA * float(ratio) for row in rows for ratio in (row.chosen_ratio, row.rejected_ratio)]
        means.append(policies.mean(rewards) if is_shifted else 0.0)
        return of_ratios(pair_objectives.bco, policies.mean(means))(rows)

    yield from compared(ctx, loss, loss_type="bco_pair")


@call(GROUP, phase=Phase.FORWARD)
def dpo_sppo_hard(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's sppo_hard pulls both ratios towards half of 1 / beta, up and down."""
    yield from compared(ctx, of_ratios(pair_objectives.sppo_hard), loss_type="sppo_hard", rate=SMALL_RATE)


@call(GROUP, phase=Phase.FORWARD)
def dpo_apo_zero(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's apo_zero raises chosen and lowers rejected completions, each anchored at the reference."""
    yield from compared(ctx, of_ratios(pair_objectives.apo_zero), loss_type="apo_zero")


@call(GROUP, phase=Phase.FORWARD)
def dpo_apo_down(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's apo_down lowers chosen completions too, and rejected ones more."""
    yield from compared(ctx, of_ratios(pair_objectives.apo_down), loss_type="apo_down")


def transported(ones: list[Any], others: list[Any]) -> Any:
    """The mean DPO loss of differences by rank, with smoothed labels: https://arxiv.org/abs/2406.05882, section 3."""
    differences = [one - other for one, other in zip(sorted(ones), sorted(others), strict=True)]
    return policies.mean([objectives.conservative_dpo(each, BETA, FLIPPED) for each in differences])


@call(GROUP, phase=Phase.FORWARD)
def dpo_aot(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's aot compares the policy's margins with the reference's, both sorted over the batch."""

    def loss(rows: list[Scores]) -> Any:
        policy = [row.chosen.sum() - row.rejected.sum() for row in rows]
        return transported(policy, [row.reference_chosen.sum() - row.reference_rejected.sum() for row in rows])

    yield from compared(ctx, loss, loss_type="aot", label_smoothing=FLIPPED)


@call(GROUP, phase=Phase.FORWARD)
def dpo_aot_unpaired(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's aot_unpaired, once aot_pair, compares chosen ratios with rejected ones, both sorted."""
    name = next(each for each in ("aot_unpaired", "aot_pair") if alignment.source_mentions("DPO", f'"{each}"'))

    def loss(rows: list[Scores]) -> Any:
        return transported([row.chosen_ratio for row in rows], [row.rejected_ratio for row in rows])

    yield from compared(ctx, loss, loss_type=name, label_smoothing=FLIPPED)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_discopop",))
def dpo_discopop(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's discopop blends the logistic and the exponential loss by the margin over discopop_tau."""
    loss = each(lambda row: pair_objectives.discopop(row.margin, BETA, TAU))
    yield from compared(ctx, loss, loss_type="discopop", discopop_tau=TAU)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_sigmoid_norm",))
def dpo_sigmoid_norm(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's sigmoid_norm is the DPO loss of log ratios per token.

    Section 5.1.1 of https://arxiv.org/abs/2411.15124.
    """
    loss = each(lambda row: objectives.dpo(row.mean_margin, BETA))
    yield from preference.compared(ctx, loss, rows=preference.pairs(BRIEF), loss_type="sigmoid_norm")


def by_reward(reward: Callable[[Any], Any]) -> Callable[[list[Scores]], Any]:
    """DPO with another reward of a ratio than the ratio itself, equation 7 of https://arxiv.org/abs/2309.16240."""
    return each(lambda row: objectives.dpo(reward(row.chosen_ratio) - reward(row.rejected_ratio), BETA))


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_forward_kl",))
def dpo_forward_kl(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's f_divergence_type="forward_kl" takes the reward of the forward divergence."""
    loss = by_reward(pair_objectives.forward_kl)
    yield from compared(ctx, loss, logged=False, rate=SMALL_RATE, f_divergence_type="forward_kl")


@call(GROUP, phase=Phase.FORWARD)
def dpo_js_divergence(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's f_divergence_type="js_divergence" takes the reward of the Jensen-Shannon divergence."""
    loss = by_reward(pair_objectives.jensen_shannon)
    yield from compared(ctx, loss, logged=False, f_divergence_type="js_divergence")


def with_alpha(ctx: Context, alpha: float) -> Iterator[Check]:
    loss = by_reward(lambda ratio: pair_objectives.alpha_divergence(ratio, alpha))
    more: dict[str, Any] = {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": alpha}
    yield from compared(ctx, loss, logged=False, rate=SMALL_RATE, **more)


@call(GROUP, phase=Phase.FORWARD)
def dpo_alpha_divergence(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's f_divergence_type="alpha_divergence" takes the reward (1 - u^-alpha) / alpha of the ratio u."""
    yield from with_alpha(ctx, 0.5)


@call(GROUP, phase=Phase.FORWARD)
def dpo_alpha_divergence_coefficient(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's f_alpha_divergence_coef is the alpha of u^-alpha, as documented, also if it is not one half.

    Table 1 of https://arxiv.org/abs/2309.16240. trl 1.16 computes u^(alpha - 1), which is the same at one half alone.
    """
    yield from with_alpha(ctx, ALPHA)


def shortened(row: Scores) -> Any:
    """The DPO loss whose sums weigh tokens beyond the other completion's length by ``SHARE``.

    Equation 9 of https://arxiv.org/abs/2409.06411.
    """
    common = min(len(row.chosen), len(row.rejected))
    chosen, rejected, before, after = (
        part[:common].sum() + SHARE * part[common:].sum()
        for part in (row.chosen, row.rejected, row.reference_chosen, row.reference_rejected)
    )
    return objectives.dpo(chosen - before - rejected + after, BETA)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_ld_alpha",))
def dpo_ld_alpha(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's ld_alpha is the weight of a completion's tokens beyond the length of the other one."""
    yield from compared(ctx, each(shortened), logged=False, ld_alpha=SHARE)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_ld_alpha",))
def dpo_ld_alpha_precomputed(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's ld_alpha weighs the tokens of a reference that is computed before the training, too."""
    more: dict[str, Any] = {"precompute_ref_log_probs": True, "remove_unused_columns": True}
    yield from compared(ctx, each(shortened), logged=False, ld_alpha=SHARE, **more)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("dpo_ld_alpha",))
def dpo_ld_alpha_of_given_reference(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's ld_alpha weighs the tokens of a ref_model, whether computed in each step or before the training."""
    for precomputed in (False, True):
        both, model = preference.tuned(ctx)
        rows = preference.pairs(LENGTHS)
        loss = preference.loss_of(both, each(shortened), logged=False)
        expected = policies.train(both.trained, policies.dealt(rows, 4), loss, preference.GENTLE)
        more: dict[str, Any] = {"precompute_ref_log_probs": precomputed, "remove_unused_columns": precomputed}
        more |= {"ref_model": ingredients.base(ctx), "learning_rate": preference.GENTLE, "ld_alpha": SHARE}
        made = preference.trainer(ctx, model, rows, **more)
        yield from alignment.as_defined(alignment.trained(made), expected)


def aligned(both: policies.Policies, ids: tuple[list[int], list[int]]) -> float:
    """The mean over a completion's tokens of log p - log of the sum of all squared p, of a policy without gradient."""
    chances = policies.log_distributions(both.policy, *ids).detach()
    own = policies.frozen_log_probabilities(both.policy, *ids)
    return float((own - chances.exp().square().sum(-1).log()).mean())


@call(GROUP, phase=Phase.FORWARD)
def dpo_use_weighting(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's use_weighting multiplies a pair's loss by how likely the policy's own sampling finds both texts.

    Section 3.2 of https://arxiv.org/abs/2406.11827; some versions limit the weight to 1, as the authors' code does.
    """
    is_limited = alignment.source_mentions("DPO", "max=1)")

    def weighted(both: policies.Policies) -> policies.Loss:
        import torch

        def loss(batches: list[list[PreferencePair]]) -> tuple[Any, policies.Metrics]:
            rows = [row for batch in batches for row in batch]
            weights = [torch.tensor(sum(aligned(both, ids) for ids in row.sequences)).exp() for row in rows]
            weights = [weight.clamp(max=1) if is_limited else weight for weight in weights]
            found = [objectives.dpo(preference.scores(both, row).margin, BETA) for row in rows]
            return policies.mean([float(one) * other for one, other in zip(weights, found, strict=True)]), {}

        return loss

    both = policies.policies(ctx.cache, ADAPTED)
    rows = preference.pairs(LENGTHS)
    expected = policies.train(both.trained, policies.dealt(rows, 4), weighted(both), alignment.RATE)
    made = preference.adapted_trainer(ctx, rows=rows, use_weighting=True)
    yield from alignment.as_defined(alignment.trained(made), expected)
