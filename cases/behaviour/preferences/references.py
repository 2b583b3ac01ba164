"""The reference of TRL's trainers if all weights are trained, and the weights of pairs by the policy itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, kto, objectives, policies, preference
from cases.behaviour.preferences.preference import FULL, GENTLE, GROUP, TUNED
from cases.model import tiny
from cases.reference import twin
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.behaviour.preferences.preference import PreferencePair, Scores


def tuned(tensors: Any) -> None:
    """Change the weights, as further training does: those of the layers, without their norms."""
    import torch

    with torch.no_grad():
        for name, tensor in tensors:
            if "layers" in name and "norm" not in name:
                tensor.mul_(TUNED)


def tuned_reference(ctx: Context, both: policies.Policies) -> Any:
    """A model whose weights differ from those of its checkpoint, as the reference's then do."""
    model = ingredients.base(ctx)
    tuned([*twin.trained_tensors(both.reference, FULL).items(), *tiny.named(model)])
    return model


@call(GROUP, phase=Phase.OPTIMIZER)
def dpo_given_reference(ctx: Context) -> Iterator[Check]:
    """DPOTrainer compares with the weights of the ref_model that is given, not with those of its checkpoint."""
    both = policies.policies(ctx.cache, FULL)
    model = tuned_reference(ctx, both)
    loss = preference.loss_of(both, preference.each(preference.sigmoid))
    expected = policies.train(both.trained, policies.dealt(preference.pairs(), 4), loss, GENTLE)
    made = preference.trainer(ctx, ingredients.base(ctx), ref_model=model, learning_rate=GENTLE)
    yield from alignment.as_defined(alignment.trained(made), expected)


@call(GROUP, phase=Phase.OPTIMIZER)
def dpo_own_reference(ctx: Context) -> Iterator[Check]:
    """DPOTrainer without ref_model compares with the model as it was: the first loss is log 2."""
    both = policies.policies(ctx.cache, FULL)
    loss = preference.loss_of(both, preference.each(preference.sigmoid))
    expected = policies.train(both.trained, policies.dealt(preference.pairs(), 4), loss, GENTLE)
    found = alignment.trained(preference.trainer(ctx, ingredients.base(ctx), learning_rate=GENTLE))
    yield at_most("first loss off log 2", abs(found.losses[0] - math.log(2)), alignment.SAME)
    yield from alignment.as_defined(found, expected)


@call(GROUP, phase=Phase.OPTIMIZER)
def kto_references(ctx: Context) -> Iterator[Check]:
    """KTOTrainer compares with the weights of ref_model or, without one, with the model as it was."""
    for given in (True, False):
        both = policies.policies(ctx.cache, FULL)
        models: dict[str, Any] = {"model": ingredients.base(ctx)}
        if given:
            models["ref_model"] = tuned_reference(ctx, both)
        settings = {"beta": kto.BETA, "desirable_weight": kto.GOOD, "undesirable_weight": kto.BAD}
        settings |= {"per_device_train_batch_size": 4, "learning_rate": GENTLE, "data_seed": kto.SHUFFLED}
        made = alignment.create(ctx, "KTO", settings, train_dataset=kto.columns(kto.rows()), **models)
        steps = policies.dealt(kto.mismatched(kto.in_order_of(made, kto.rows()), 4, 1), 4)
        expected = policies.train(both.trained, steps, kto.loss_of(both), GENTLE)
        yield from alignment.as_defined(alignment.trained(made), expected)


def certainty(both: policies.Policies, row: PreferencePair) -> float:
    """How probable a pair is for the policy, against its own samples: equation 2 of https://arxiv.org/abs/2406.11827.

    The exponential of the mean over tokens of log p less the log of the sum of p^2 over the vocabulary.
    """
    import torch

    total = 0.0
    with torch.no_grad():
        for prompt, completion in row.sequences:
            every = policies.log_distributions(both.policy, prompt, completion)
            chosen = every.gather(-1, torch.tensor(completion)[:, None])[:, 0]
            total += float((chosen - (2 * every).logsumexp(-1)).mean())
    return math.exp(total)


def weighted(ctx: Context, kind: str, of_row: Callable[[Scores], Any]) -> Iterator[Check]:
    both, rows, weights = policies.policies(ctx.cache, Options()), preference.pairs(), []

    def loss(batches: list[list[PreferencePair]]) -> tuple[Any, policies.Metrics]:
        found = []
        for row in (row for batch in batches for row in batch):
            weights.append(certainty(both, row))
            found.append(weights[-1] * of_row(preference.scores(both, row)))
        return policies.mean(found), {}

    expected = policies.train(both.trained, policies.dealt(rows, 4), loss, alignment.RATE)
    yield at_most("largest weight", max(weights), 1.0)
    yield at_least("spread of the weights", max(weights) - min(weights), 0.05)
    made = preference.adapted_trainer(ctx, loss_type=kind, use_weighting=True)
    yield from alignment.as_defined(alignment.trained(made), expected)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_use_weighting",))
def dpo_weighted_pairs(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's use_weighting multiplies the loss of a pair by how probable the policy finds it, as WPO does.

    The weight gets no gradient. Some versions bound it by 1, which no weight of these rows exceeds.
    """
    yield from weighted(ctx, "sigmoid", preference.sigmoid)
    yield from weighted(ctx, "ipo", lambda row: objectives.ipo(row.mean_margin, preference.BETA))


@call(GROUP, phase=Phase.BACKWARD, requires=("dpo_use_weighting",))
def dpo_weighted_pairs_of_hinge(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's use_weighting multiplies the loss of each pair with loss_type="hinge" too."""
    yield from weighted(ctx, "hinge", lambda row: objectives.hinge(row.margin, preference.BETA))
