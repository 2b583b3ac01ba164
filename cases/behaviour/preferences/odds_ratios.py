"""ORPOTrainer and CPOTrainer, which have no reference model, against the losses of their papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, objectives, pair_objectives, policies, preference
from cases.behaviour.preferences.preference import BETA, FLIPPED, GROUP, PreferencePair
from cases.space.options import Options
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

    Pair = tuple[Any, Any]  # log p of the tokens of the chosen and of the rejected completion
    OfPair = Callable[[Any, Any], Any]

LENGTHS = ((5, 4, 3), (2, 7, 8), (7, 2, 6), (3, 5, 1), (4, 3, 5), (6, 6, 2), (1, 8, 4), (8, 2, 7))
LIKELY = 0.6  # the weight of the likelihood beside the preference loss
GAMMA = 0.4  # the margin of SimPO
SMALL_RATE = 0.1  # the likelihood has steeper gradients than a preference


def learned(both: policies.Policies, row: PreferencePair) -> Pair:
    chosen, rejected = (policies.log_probabilities(both.policy, *each) for each in row.sequences)
    return chosen, rejected


def of_prompt_too(both: policies.Policies, row: PreferencePair) -> Any:
    """Log p of every token of the prompt and the chosen completion but the first."""
    prompt, completion = row.sequences[0]
    return policies.log_probabilities(both.policy, prompt[:1], [*prompt[1:], *completion])


def likelihood(texts: list[Any]) -> Any:
    """The mean of -log p over all tokens of a batch."""
    return -sum(each.sum() for each in texts) / sum(len(each) for each in texts)


def loss_of(
    both: policies.Policies, of_pair: OfPair, *, weight: float, is_mean: bool, prompts: bool = False
) -> policies.Loss:
    """The mean loss of pairs and ``weight`` times the likelihood of chosen texts, with or without their prompts.

    ``is_mean``: scores are the mean log p of a completion's tokens, not the sum.
    """

    def loss(batches: list[list[PreferencePair]]) -> tuple[Any, policies.Metrics]:
        found = []
        scores: policies.Metrics = {f"rewards/{kind}": [] for kind in ("chosen", "rejected")}
        for batch in batches:
            pairs = [learned(both, row) for row in batch]
            sums = [[part.mean() if is_mean else part.sum() for part in pair] for pair in pairs]
            texts = [of_prompt_too(both, row) for row in batch] if prompts else [chosen for chosen, _ in pairs]
            found.append(policies.mean([of_pair(*pair) for pair in sums]) + weight * likelihood(texts))
            for place, kind in enumerate(("chosen", "rejected")):
                scores[f"rewards/{kind}"] += [BETA * pair[place].item() for pair in sums]
        scores["rewards/margins"] = [
            one - other for one, other in zip(scores["rewards/chosen"], scores["rewards/rejected"], strict=True)
        ]
        scores["rewards/accuracies"] = [float(margin > 0) for margin in scores["rewards/margins"]]
        return policies.mean(found), scores

    return loss


def compared(
    ctx: Context,
    kind: str,
    of_pair: OfPair,
    *,
    weight: float,
    is_mean: bool,
    prompts: bool = False,
    size: int = 4,
    accumulation: int = 1,
    **chosen: Any,
) -> Iterator[Check]:
    """Train two steps with an adapter, and compare."""
    both, rows = policies.policies(ctx.cache, Options()), preference.pairs(LENGTHS)
    steps = policies.dealt(rows, size, ctx.place.world_size, accumulation)
    loss = loss_of(both, of_pair, weight=weight, is_mean=is_mean, prompts=prompts)
    expected = policies.train(both.trained, steps, loss, SMALL_RATE)
    settings = {
        "beta": BETA,
        "learning_rate": SMALL_RATE,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulation,
        **chosen,
    }
    made = alignment.create(
        ctx,
        kind,
        settings,
        model=ingredients.base(ctx),
        peft_config=alignment.lora(),
        train_dataset=preference.columns(rows),
    )
    yield from alignment.as_defined(alignment.trained(alignment.fill(made)), expected)


def odds_ratio(chosen: Any, rejected: Any) -> Any:
    """Equation 6 of https://arxiv.org/abs/2403.07691, times its lambda."""
    odds = pair_objectives.log_odds(chosen) - pair_objectives.log_odds(rejected)
    return -BETA * objectives.log_sigmoid(odds)


@call(GROUP, phase=Phase.FORWARD, requires=("orpo",))
def orpo_loss(ctx: Context) -> Iterator[Check]:
    """ORPOTrainer adds beta times the log odds ratio to the likelihood of prompt and chosen completion.

    The authors' code includes the prompt in the likelihood too.
    """
    yield from compared(ctx, "ORPO", odds_ratio, weight=1.0, is_mean=True, prompts=True)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=("orpo",))
def orpo_ddp(ctx: Context) -> Iterator[Check]:
    """ORPOTrainer on two ranks takes the mean of the ranks' losses."""
    more: dict[str, Any] = {"size": 2, "ddp_find_unused_parameters": False}
    yield from compared(ctx, "ORPO", odds_ratio, weight=1.0, is_mean=True, prompts=True, **more)


def reference_free(chosen: Any, rejected: Any) -> Any:
    return objectives.dpo(chosen - rejected, BETA)


@call(GROUP, phase=Phase.FORWARD, requires=("cpo",))
def cpo_loss(ctx: Context) -> Iterator[Check]:
    """CPOTrainer is DPO without a reference plus cpo_alpha times the likelihood of the chosen completion.

    Equations 5 and 6 of https://arxiv.org/abs/2401.08417.
    """
    yield from compared(ctx, "CPO", reference_free, weight=LIKELY, is_mean=False, cpo_alpha=LIKELY)


@call(GROUP, phase=Phase.FORWARD, requires=("cpo",))
def cpo_label_smoothing(ctx: Context) -> Iterator[Check]:
    """CPOTrainer's label_smoothing mixes the losses of both labels."""

    def loss(chosen: Any, rejected: Any) -> Any:
        return objectives.conservative_dpo(chosen - rejected, BETA, FLIPPED)

    more: dict[str, Any] = {"label_smoothing": FLIPPED, "cpo_alpha": 0.0}
    yield from compared(ctx, "CPO", loss, weight=0.0, is_mean=False, **more)


@call(GROUP, phase=Phase.FORWARD, requires=("cpo",))
def cpo_hinge(ctx: Context) -> Iterator[Check]:
    """CPOTrainer's hinge is the hinge of the difference of log p."""

    def loss(chosen: Any, rejected: Any) -> Any:
        return objectives.hinge(chosen - rejected, BETA)

    yield from compared(ctx, "CPO", loss, weight=LIKELY, is_mean=False, loss_type="hinge", cpo_alpha=LIKELY)


@call(GROUP, phase=Phase.FORWARD, requires=("cpo",))
def cpo_simpo(ctx: Context) -> Iterator[Check]:
    """CPOTrainer's simpo with cpo_alpha=0 is the loss of SimPO: log p per token, less simpo_gamma."""

    def loss(chosen: Any, rejected: Any) -> Any:
        return pair_objectives.simpo(chosen, rejected, BETA, GAMMA)

    more: dict[str, Any] = {"loss_type": "simpo", "simpo_gamma": GAMMA, "cpo_alpha": 0.0}
    yield from compared(ctx, "CPO", loss, weight=0.0, is_mean=True, **more)


@call(GROUP, phase=Phase.FORWARD, requires=("cpo",))
def cpo_simpo_smoothed(ctx: Context) -> Iterator[Check]:
    """CPOTrainer's label_smoothing mixes the losses of both labels of simpo too, of the margin less its gamma."""

    def loss(chosen: Any, rejected: Any) -> Any:
        return objectives.conservative_dpo(chosen - rejected - GAMMA / BETA, BETA, FLIPPED)

    more: dict[str, Any] = {"loss_type": "simpo", "simpo_gamma": GAMMA, "cpo_alpha": 0.0, "label_smoothing": FLIPPED}
    yield from compared(ctx, "CPO", loss, weight=0.0, is_mean=True, **more)


@call(GROUP, phase=Phase.BACKWARD, requires=("cpo",))
def cpo_accumulation(ctx: Context) -> Iterator[Check]:
    """CPOTrainer with gradient_accumulation_steps=2 takes the mean of the losses of both batches."""
    more: dict[str, Any] = {"size": 2, "accumulation": 2, "cpo_alpha": LIKELY}
    yield from compared(ctx, "CPO", reference_free, weight=LIKELY, is_mean=False, **more)


ALPHA = 0.3  # of AlphaPO


@call(GROUP, phase=Phase.FORWARD, requires=("cpo", "cpo_alpha"))
def cpo_alphapo(ctx: Context) -> Iterator[Check]:
    """CPOTrainer's alpha bends the reward to (1 - p^-alpha) / alpha: https://arxiv.org/abs/2501.03884, equation 5."""

    def loss(chosen: Any, rejected: Any) -> Any:
        return pair_objectives.simpo(bent(chosen), bent(rejected), BETA, GAMMA)

    def bent(mean: Any) -> Any:
        return pair_objectives.alpha_divergence(mean, ALPHA)

    both, rows = policies.policies(ctx.cache, Options()), preference.pairs(LENGTHS)
    inner = loss_of(both, loss, weight=0.0, is_mean=True)
    expected = policies.train(
        both.trained, policies.dealt(rows, 4), lambda batches: (inner(batches)[0], {}), alignment.RATE
    )
    more = {"loss_type": "simpo", "simpo_gamma": GAMMA, "cpo_alpha": 0.0, "alpha": ALPHA, "beta": BETA}
    made = alignment.create(
        ctx,
        "CPO",
        {"per_device_train_batch_size": 4, **more},
        model=ingredients.base(ctx),
        peft_config=alignment.lora(),
        train_dataset=preference.columns(rows),
    )
    yield from alignment.as_defined(alignment.trained(alignment.fill(made)), expected)
