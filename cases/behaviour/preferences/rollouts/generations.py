"""When GRPOTrainer and RLOOTrainer generate, how many rows at once, and in which order they take the prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import grpo, policies
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Preference losses"
KINDS = ("GRPO", "RLOO")
STILL: dict[str, Any] = {"learning_rate": 0.0, "beta": 0.0, "temperature": 1.0}
# Batches of a step, batches of a generation, uses of a generation, and steps of a training.
PLANS = ((1, None, 1, 2), (2, None, 2, 2), (1, 2, 1, 4))


@call(GROUP, phase=Phase.FORWARD, requires=("rloo", "rloo_steps_per_generation"))
def rollouts_generated_at_once(ctx: Context) -> Iterator[Check]:
    """steps_per_generation batches, by default those of a step, are generated at once and used num_iterations times."""
    for kind in KINDS:
        for accumulation, batches, uses, steps in PLANS:
            given = {**STILL, "per_device_train_batch_size": grpo.GENERATIONS, "max_steps": steps}
            given |= {"gradient_accumulation_steps": accumulation, "num_iterations": uses}
            if batches is not None:
                given["steps_per_generation"] = batches
            made, rollouts = grpo.trainer(ctx, given, kind)
            made.train()
            size = batches or accumulation
            number = steps * accumulation // (size * uses)
            title = f"{kind}, {accumulation} batches, {batches} generated, {uses} uses"
            found = [len(rows) for rows in rollouts.calls]
            yield equal(f"rows of each generation, {title}", str(found), str([size * grpo.GENERATIONS] * number))


def texts(rows: list[tuple[list[int], list[int]]]) -> list[str]:
    """The prompts of a generation, each once, in order."""
    return list(dict.fromkeys(policies.text(prompt).strip() for prompt, _ in rows))


@call(GROUP, phase=Phase.FORWARD, requires=("rloo", "rloo_shuffle_dataset"))
def rollouts_in_seeded_order(ctx: Context) -> Iterator[Check]:
    """The order of the prompts is torch's permutation for the seed; with shuffle_dataset=False, they stay in order."""
    import torch

    prompts = [each.strip() for each in grpo.prompts()]
    for kind in KINDS:
        for seed, shuffled in ((1, True), (2, True), (1, False)):
            given = {**STILL, "seed": seed, "shuffle_dataset": shuffled, "max_steps": 2}
            made, rollouts = grpo.trainer(ctx, given, kind)
            made.train()
            order = list(range(len(prompts)))
            if shuffled:
                order = torch.randperm(len(prompts), generator=torch.Generator().manual_seed(seed)).tolist()
            found = [text for rows in rollouts.calls for text in texts(rows)]
            title = f"{kind}, seed {seed}, shuffle_dataset={shuffled}"
            yield equal(f"order of prompts, {title}", str(found), str([prompts[each] for each in order]))
            counts = {len(rows) // len(texts(rows)) for rows in rollouts.calls}
            yield equal(f"completions of each prompt, {title}", str(counts), str({grpo.GENERATIONS}))
