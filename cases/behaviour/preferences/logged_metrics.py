"""Every metric that TRL's trainers log, by its documentation, from the reference: single steps, windows and two ranks.

Rows and batches differ in length, so that means over tokens, rows and batches differ. Metrics of a window are means
over its steps; num_tokens is the count at its end.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, kto, policies, preference, reward, sft_losses
from cases.model import tiny
from cases.reference import models, tolerance
from cases.reference.network import Batch
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context
    from cases.reference.network import Network

    Row = Any
    Measure = Callable[[list[Row]], policies.Metrics]  # of the rows of all ranks of a step

GROUP = "Metrics of TRL"
SAME = 2e-5  # relative to a value of at least 1
WINDOWED = {"logging_steps": 2}
RATE = 0.1  # smaller than that of the losses: after eight steps, rounding grows
WHOLE = {"max_steps": -1, "num_train_epochs": 1, "learning_rate": RATE}


def distribution(network: Network, prompt: Sequence[int], completion: Sequence[int]) -> tuple[Any, Any]:
    """The logits and log p of every token at each place of a completion: float64, (completion, vocabulary)."""
    import torch

    with torch.no_grad():
        ids = torch.tensor([[*prompt, *completion]])
        logits = models.logits(network, Batch(ids=ids))[0, len(prompt) - 1 : -1]
        return logits, logits.log_softmax(-1)


def entropies(network: Network, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
    """The entropy at each place of a completion."""
    _, log_p = distribution(network, prompt, completion)
    found: list[float] = (-(log_p.exp() * log_p).sum(-1)).tolist()
    return found


def hits(network: Network, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
    """Whether each token of a completion is the most probable one, as 1 or 0."""
    logits, _ = distribution(network, prompt, completion)
    return [float(top == token) for top, token in zip(logits.argmax(-1).tolist(), completion, strict=True)]


def guessable(network: Network, prompt: Sequence[int], completion: Sequence[int]) -> list[int]:
    """The completion with every second word the most probable one: random words are hardly ever, so nothing hits."""
    found: list[int] = []
    for place, word in enumerate(completion):
        best = int(distribution(network, prompt, [*found, word])[0][-1].argmax())
        found.append(best if place % 2 == 0 and best >= policies.FIRST else word)
    return found


def prompt_of_the_end(network: Network, start: Sequence[int] = ()) -> list[int]:
    """The start and a word after which the end is the most probable token."""
    prompts = ([*start, *policies.tokens(2, seed)] for seed in range(1000))
    return next(prompt for prompt in prompts if hits(network, prompt, [tiny.END]) == [1.0])


def mean_logits(network: Network, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
    """The mean over the vocabulary of the logits at each place of a completion."""
    found: list[float] = distribution(network, prompt, completion)[0].mean(-1).tolist()
    return found


def counted(steps: Sequence[Any], tokens_of: Callable[[Any], int]) -> list[int]:
    """The tokens of all rows up to each step."""
    found, total = [], 0
    for step in steps:
        total += sum(tokens_of(row) for micro_batch in step for batch in micro_batch for row in batch)
        found.append(total)
    return found


def windows(expected: policies.Course, every: int) -> list[dict[str, float]]:
    """The mean of each metric over each window of steps, and the last num_tokens; incomplete windows log nothing."""
    found = []
    for end in range(every, len(expected.losses) + 1, every):
        of_window = expected.metrics[end - every : end]
        names = {name: None for metrics in of_window for name in metrics}
        means = {n: policies.mean([metrics[n] for metrics in of_window if n in metrics]) for n in names}
        if "num_tokens" in of_window[-1]:
            means["num_tokens"] = of_window[-1]["num_tokens"]
        found.append({"loss": policies.mean(expected.losses[end - every : end]), **means})
    return found


def as_logged(ctx: Context, kind: str, name: str, made: Any, expected: policies.Course) -> Iterator[Check]:
    """Train, and compare each entry of the log; ``name`` is that of the setting."""
    made.train()
    if ctx.place.rank:
        return  # other ranks than the first may log nothing, which nobody sees
    entries = [entry for entry in made.state.log_history if "loss" in entry]
    wanted = windows(expected, made.args.logging_steps)
    if "mean_token_accuracy" in wanted[0]:
        best = max(window["mean_token_accuracy"] for window in wanted)
        yield at_least(f"largest expected share of hits, {name}", best, 0.1)
    yield equal(f"entries of the log, {name}", len(entries), len(wanted))
    for metric in wanted[0]:
        if metric != "loss" and not alignment.source_mentions(kind, f'"{metric}"'):
            continue  # of later versions
        errors = [
            alignment.off(entry.get(metric, float("inf")), each[metric])
            for entry, each in zip(entries, wanted, strict=False)
            if metric in each
        ]
        yield at_most(f"{metric} off, {name}", tolerance.worst(errors), alignment.LOGGED if metric == "loss" else SAME)


def learned_parts(row: sft_losses.MaskedRow) -> tuple[list[int], list[int]]:
    begin = row.learned.index(True)
    return row.ids[:begin], row.ids[begin:]


def sft_measure(both: policies.Policies) -> Measure:
    """https://huggingface.co/docs/trl/sft_trainer#logged-metrics: over non-masked tokens."""

    def measure(rows: list[sft_losses.MaskedRow]) -> policies.Metrics:
        parts = [learned_parts(row) for row in rows]
        return {
            "entropy": [value for part in parts for value in entropies(both.policy, *part)],
            "mean_token_accuracy": [value for part in parts for value in hits(both.policy, *part)],
        }

    return measure


def sft_loss(both: policies.Policies) -> policies.Loss:
    """The mean over the learned tokens of all ranks."""
    sums, measure = sft_losses.loss_of(both, sft_losses.negative), sft_measure(both)

    def loss(batches: list[list[sft_losses.MaskedRow]]) -> tuple[Any, policies.Metrics]:
        rows = [row for batch in batches for row in batch]
        total, number = sums(rows)
        return total / number, measure(rows)

    return loss


def sft_logs(ctx: Context, name: str, size: int, **chosen: Any) -> Iterator[Check]:
    both = policies.policies(ctx.cache, Options())
    pairs = sft_losses.completions()
    pairs = [(prompt, [*guessable(both.policy, prompt, ids[:-1]), tiny.END]) for prompt, ids in pairs]
    pairs[0] = prompt_of_the_end(both.policy), [tiny.END]
    steps, data = sft_losses.completion_steps(pairs)
    rows = [row for step in steps for row in step]
    dealt = policies.dealt(rows, size, ctx.place.world_size)
    expected = policies.train(both.trained, dealt, sft_loss(both), RATE)
    for metrics, tokens in zip(expected.metrics, counted(dealt, lambda row: len(row.ids)), strict=True):
        metrics["num_tokens"] = float(tokens)
    given = {"remove_unused_columns": True, "completion_only_loss": True, "per_device_train_batch_size": size}
    made = alignment.create(ctx, "SFT", {**given, **WHOLE, **chosen}, **alignment.fresh(ctx), train_dataset=data)
    yield from as_logged(ctx, "SFT", name, alignment.fill(made), expected)


@call(GROUP, phase=Phase.FORWARD, requires=("sft_completion_only_loss",))
def sft_metrics(ctx: Context) -> Iterator[Check]:
    """SFTTrainer logs loss, entropy, mean_token_accuracy over learned tokens, and num_tokens, of steps and windows.

    The last batch has two rows of eight in batches of three; with one row per batch, each step is one row.
    """
    yield from sft_logs(ctx, "batches of 3", 3)
    yield from sft_logs(ctx, "windows", 2, **WINDOWED)
    yield from sft_logs(ctx, "single rows", 1)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("sft_completion_only_loss", "tokens_across_devices"))
def sft_metrics_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, SFTTrainer's metrics are means over the learned tokens of both, and num_tokens counts both."""
    more: dict[str, Any] = {"ddp_find_unused_parameters": False, "average_tokens_across_devices": True}
    yield from sft_logs(ctx, "two ranks", 2, **more)


def dpo_loss(both: policies.Policies) -> policies.Loss:
    """https://huggingface.co/docs/trl/dpo_trainer#logged-metrics."""
    inner = preference.loss_of(both, preference.each(preference.sigmoid))

    def loss(batches: list[list[preference.PreferencePair]]) -> tuple[Any, policies.Metrics]:
        value, metrics = inner(batches)
        chosen, rejected = zip(*(row.sequences for batch in batches for row in batch), strict=True)
        metrics["entropy"] = [v for part in (*chosen, *rejected) for v in entropies(both.policy, *part)]
        metrics["mean_token_accuracy"] = [v for part in chosen for v in hits(both.policy, *part)]
        metrics["logits/chosen"] = [v for part in chosen for v in mean_logits(both.policy, *part)]
        metrics["logits/rejected"] = [v for part in rejected for v in mean_logits(both.policy, *part)]
        return value, metrics

    return loss


def dpo_logs(ctx: Context, name: str, size: int, **chosen: Any) -> Iterator[Check]:
    both = policies.policies(ctx.cache, Options())
    rows = [replace(row, chosen=guessable(both.policy, row.prompt, row.chosen)) for row in preference.pairs()]
    rows[0] = replace(rows[0], prompt=prompt_of_the_end(both.policy, [tiny.START]), chosen=[])
    dealt = policies.dealt(rows, size, ctx.place.world_size)
    expected = policies.train(both.trained, dealt, dpo_loss(both), RATE)

    def tokens_of(row: preference.PreferencePair) -> int:
        return sum(len(prompt) + len(completion) for prompt, completion in row.sequences)

    for metrics, tokens in zip(expected.metrics, counted(dealt, tokens_of), strict=True):
        metrics["num_tokens"] = float(tokens)
    made = preference.adapted_trainer(ctx, rows=rows, size=size, **{**WHOLE, **chosen})
    yield from as_logged(ctx, "DPO", name, made, expected)


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_entropy",))
def dpo_metrics(ctx: Context) -> Iterator[Check]:
    """DPOTrainer logs rewards and log p by row, and entropy, logits and accuracy by token, of steps and windows."""
    yield from dpo_logs(ctx, "batches of 3", 3)
    yield from dpo_logs(ctx, "windows", 2, **WINDOWED)
    yield from dpo_logs(ctx, "single rows", 1)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("dpo_entropy",))
def dpo_metrics_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, DPOTrainer's metrics are means over the rows, or the tokens, of both."""
    yield from dpo_logs(ctx, "two ranks", 2, ddp_find_unused_parameters=False)


def kto_loss(both: policies.Policies) -> policies.Loss:
    """https://huggingface.co/docs/trl/kto_trainer#logged-metrics."""
    inner = kto.loss_of(both)

    def loss(batches: list[list[kto.JudgedCompletion]]) -> tuple[Any, policies.Metrics]:
        value, metrics = inner(batches)
        metrics["entropy"] = []
        for row in (row for batch in batches for row in batch):
            part = (row.prompt, [*row.completion, tiny.END])
            metrics["entropy"] += entropies(both.policy, *part)
            metrics.setdefault(f"logits/{'chosen' if row.desirable else 'rejected'}", []).extend(
                mean_logits(both.policy, *part)
            )
        return value, metrics

    return loss


def kto_logs(ctx: Context, name: str, size: int, **chosen: Any) -> Iterator[Check]:
    data, both = kto.rows(), policies.policies(ctx.cache, Options())
    settings = {
        "beta": kto.BETA,
        "desirable_weight": kto.GOOD,
        "undesirable_weight": kto.BAD,
        "per_device_train_batch_size": size,
        "data_seed": kto.SHUFFLED,
    }
    made = alignment.create(
        ctx, "KTO", {**settings, **WHOLE, **chosen}, train_dataset=kto.columns(data), **alignment.fresh(ctx)
    )
    dealt = policies.dealt(kto.mismatched(data, size, 1), size, ctx.place.world_size)
    expected = policies.train(both.trained, dealt, kto_loss(both), RATE)
    totals = counted(dealt, lambda row: len(row.prompt) + len(row.completion) + 1)
    for metrics, tokens in zip(expected.metrics, totals, strict=True):
        metrics["num_tokens"] = float(tokens)
        if "rewards/chosen" in metrics and "rewards/rejected" in metrics:
            metrics["rewards/margins"] = metrics["rewards/chosen"] - metrics["rewards/rejected"]
    yield from as_logged(ctx, "KTO", name, alignment.fill(made), expected)


@call(GROUP, phase=Phase.FORWARD, requires=("kto_entropy",))
def kto_metrics(ctx: Context) -> Iterator[Check]:
    """KTOTrainer logs means over the rows, or the tokens, of each kind that a batch has, of steps and windows."""
    yield from kto_logs(ctx, "batches of 4", 4)
    yield from kto_logs(ctx, "windows", 2, **WINDOWED)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("kto_entropy",))
def kto_metrics_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, KTOTrainer's metrics are means over the rows, or the tokens, of each kind of both."""
    yield from kto_logs(ctx, "two ranks", 2, ddp_find_unused_parameters=False)


EMPTY: dict[
    str, tuple[dict[str, Any], float, dict[str, list[Any]]]
] = {  # the loss of rows that have nothing to learn, and the columns of such rows; one token cannot be predicted
    "DPO": ({}, math.log(2), {"prompt": ["", ""], "chosen": ["", ""], "rejected": ["", ""]}),
    "KTO": (
        {"loss_type": "apo_zero_unpaired"},
        0.5,
        {"prompt": ["", ""], "completion": ["", ""], "label": [True, False]},
    ),
}


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_entropy", "kto_entropy"))
def metrics_without_tokens(ctx: Context) -> Iterator[Check]:
    """DPOTrainer and KTOTrainer log the loss of equal policies, and 0 for all else, of batches that learn no token."""
    names = ("entropy", "mean_token_accuracy", "logits/chosen", "logits/rejected", "rewards/chosen", "logps/chosen")
    for kind, (settings, loss, rows) in EMPTY.items():
        given = {"per_device_train_batch_size": 1, **settings}
        data = ingredients.dataset(**rows)
        made = alignment.create(ctx, kind, given, train_dataset=data, **alignment.fresh(ctx))
        made.train()
        entries = [entry for entry in made.state.log_history if "loss" in entry]
        yield equal(f"entries of the log, {kind}", len(entries), 2)
        for entry in entries:
            yield at_most(f"loss off, {kind}", abs(entry["loss"] - loss), alignment.LOGGED)
            found = {name: entry[name] for name in names if entry.get(name)}
            yield equal(f"metrics other than 0, {kind}", str(found), "{}")


def reward_logs(ctx: Context, name: str, size: int, **chosen: Any) -> Iterator[Check]:
    """https://huggingface.co/docs/trl/reward_trainer#logged-metrics."""
    both, rows = reward.reward_policies(ctx), reward.pairs()
    inner = reward.loss_of(both, reward.plain, logged=True)

    def loss(batches: list[list[reward.RankedTexts]]) -> tuple[Any, policies.Metrics]:
        value, metrics = inner(batches)
        metrics["min_reward"] = [min(metrics["mean_reward"])]
        metrics["max_reward"] = [max(metrics["mean_reward"])]
        return value, metrics

    dealt = policies.dealt(rows, size, ctx.place.world_size)
    expected = policies.train(both.trained, dealt, loss, RATE)
    totals = counted(dealt, lambda row: len(row.chosen) + len(row.rejected))
    for metrics, tokens in zip(expected.metrics, totals, strict=True):
        metrics["num_tokens"] = float(tokens)
    made = reward.trainer(ctx, size=size, margins=False, **{**WHOLE, **chosen})
    yield from as_logged(ctx, "Reward", name, made, expected)


@call(GROUP, phase=Phase.FORWARD, requires=("reward_metrics",))
def reward_metrics(ctx: Context) -> Iterator[Check]:
    """RewardTrainer logs the least, mean and largest reward, accuracy, margin and tokens, of steps and windows."""
    yield from reward_logs(ctx, "batches of 3", 3)
    yield from reward_logs(ctx, "windows", 2, **WINDOWED)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("reward_metrics",))
def reward_metrics_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, RewardTrainer's least and largest rewards, means and tokens are those of both."""
    yield from reward_logs(ctx, "two ranks", 2, ddp_find_unused_parameters=False)
