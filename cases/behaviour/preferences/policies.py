"""The policy and the reference policy of a preference trainer, by the reference network in float64, and its training.

Rows are lists of token ids. The reference reads each row alone, so nothing is padded or truncated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api.ingredients import SPECIAL
from cases.model import architectures, tiny
from cases.reference import models, twin
from cases.reference.network import Batch, Network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cases.space.options import Options

    Metrics = dict[str, list[float]]  # the values of each row, token or batch, of which the mean is logged
    Loss = Callable[[Any], tuple[Any, Metrics]]  # of the batches that the ranks train on at the same time

FIRST = len(SPECIAL)  # the first token that is not special


def tokens(length: int, seed: int) -> list[int]:
    """Token ids of a text."""
    return random.Random(seed).choices(range(FIRST, tiny.VOCABULARY), k=length)  # noqa: S311 - no secret


def texts(lengths: Sequence[Sequence[int]], seed: int = 0) -> list[list[list[int]]]:
    """The parts of each row, of these lengths."""
    return [
        [tokens(length, 1000 * seed + 10 * row + part) for part, length in enumerate(of_row)]
        for row, of_row in enumerate(lengths)
    ]


def text(ids: Sequence[int]) -> str:
    """The words of token ids, each behind a space, so that texts can be joined."""
    return "".join(f" {SPECIAL[each] if each < FIRST else f'w{each}'}" for each in ids)


@dataclass
class Policies:
    """The trained ``policy`` and the frozen ``reference``; ``trained`` has the policy's tensors by canonical name."""

    policy: Network
    reference: Network
    trained: dict[str, Any]


def policies(cache: Path, options: Options) -> Policies:
    """The policy with the start values of the options' adapter, and the checkpoint without it as reference."""
    folder = architectures.plain_checkpoint(cache)
    policy, reference = (twin.network(options, folder) for _ in range(2))
    return Policies(policy, reference, twin.trained_tensors(policy, options))


def continued_policies(cache: Path, options: Options) -> Policies:
    """The policy, and as reference a copy of it, with the adapter's start values too."""
    both = policies(cache, options)
    for tensor in twin.trained_tensors(both.reference, options).values():
        tensor.requires_grad_(False)  # noqa: FBT003 - torch's argument
    return both


def log_distributions(
    network: Network, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0
) -> Any:
    """Log p of every token at each place of a completion after a prompt: float64, (completion, vocabulary)."""
    import torch

    ids = torch.tensor([[*prompt, *completion]])
    return (models.logits(network, Batch(ids=ids))[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)


def log_probabilities(
    network: Network, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0
) -> Any:
    """Log p of each token of a completion after a prompt: float64, (completion,)."""
    import torch

    found = log_distributions(network, prompt, completion, temperature)
    return found.gather(-1, torch.tensor(completion)[:, None])[:, 0]


def frozen_log_probabilities(
    network: Network, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0
) -> Any:
    import torch

    with torch.no_grad():
        return log_probabilities(network, prompt, completion, temperature)


@dataclass
class Course:
    """The course of a training: loss, metrics and gradients of each step, and the weights at the end."""

    losses: list[float] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    gradients: list[dict[str, Any]] = field(default_factory=list)
    after: dict[str, Any] = field(default_factory=dict)


def train(trained: dict[str, Any], steps: Sequence[Sequence[Any]], loss_of: Loss, rate: float) -> Course:
    """Train by plain gradient descent; a step's loss is the mean over its micro-batches."""
    import torch

    course = Course()
    update = twin.stochastic_gradient_descent()
    for step in steps:
        found = [loss_of(micro_batch) for micro_batch in step]
        loss = mean([loss for loss, _ in found])
        loss.backward()
        course.losses.append(loss.item())
        course.metrics.append(pooled([metrics for _, metrics in found]))
        course.gradients.append(twin.stored({name: each.grad for name, each in trained.items()}))
        with torch.no_grad():
            update(trained, rate)
    course.after = twin.stored(trained)
    return course


def pooled(metrics: Sequence[Metrics]) -> dict[str, float]:
    """The mean of each metric over all values of a step."""
    names = {name: None for each in metrics for name in each}
    return {name: mean([value for each in metrics for value in each.get(name, ())]) for name in names}


def mean(values: Sequence[Any]) -> Any:
    return sum(values) / len(values)


def dealt(rows: Sequence[Any], size: int, ranks: int = 1, accumulation: int = 1) -> list[list[list[list[Any]]]]:
    """Steps of micro-batches of the ranks' batches of ``size`` rows: consecutive batches go to consecutive ranks."""
    batches = [list(rows[begin : begin + size]) for begin in range(0, len(rows), size)]
    at_once = [batches[begin : begin + ranks] for begin in range(0, len(batches), ranks)]
    return [at_once[begin : begin + accumulation] for begin in range(0, len(at_once), accumulation)]
