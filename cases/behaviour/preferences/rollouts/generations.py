"""When GRPOTrainer and RLOOTrainer generate, how many rows at once, in which order, and what their workers read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.data import worker_randomness
from cases.behaviour.preferences import grpo, policies
from cases.behaviour.preferences.inputs.row_forms import known
from cases.behaviour.trainers import stock_trainer
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


WORKERS = 2
WITH_WORKERS: dict[str, Any] = {**STILL, "dataloader_num_workers": WORKERS, "max_steps": 2}


def sizes(rollouts: grpo.Rollouts) -> list[list[int]]:
    """How many neighbouring rows have the same prompt, in each generation."""
    found = []
    for rows in rollouts.calls:
        numbers: list[int] = []
        before: list[int] | None = None
        for prompt, _ in rows:
            if prompt == before:
                numbers[-1] += 1
            else:
                numbers.append(1)
            before = prompt
        found.append(numbers)
    return found


@call(GROUP, phase=Phase.FORWARD, requires=("repeated_streams",))
def rollouts_of_workers(ctx: Context) -> Iterator[Check]:
    """Workers keep the completions of a prompt together, also those of a stream, which one process alone reads."""
    wanted = str([[grpo.GENERATIONS] * 2] * 2)
    prompts = {each.strip() for each in grpo.prompts()}
    for kind in known(KINDS):
        for streamed in (False, True):
            title = f"{kind}, {'stream' if streamed else 'rows'}"
            made, rollouts = grpo.trainer(ctx, {**WITH_WORKERS, "streamed": streamed}, kind)
            yield equal(f"workers, {title}", made.args.dataloader_num_workers, 0 if streamed else WORKERS)
            made.train()
            yield equal(f"rows of each prompt, {title}", str(sizes(rollouts)), wanted)
            found = {text for rows in rollouts.calls for text in texts(rows)}
            yield equal(f"prompts of an epoch, {title}", found == prompts, bound=True)


@call("Workers of loaders", phase=Phase.LOAD, ranks=2, requires=("grpo",))
def rollouts_worker_randomness_of_ranks(ctx: Context) -> Iterator[Check]:
    """dataloader_num_workers of GRPOTrainer and RLOOTrainer: the workers of two ranks draw different numbers."""
    for kind in known(KINDS):
        made, _ = grpo.trainer(ctx, {**WITH_WORKERS, "ddp_find_unused_parameters": False}, kind)
        made.train_dataset, made.data_collator = worker_randomness.Draws(), worker_randomness.together
        everyone = stock_trainer.gathered(ctx, worker_randomness.epochs(made.get_train_dataloader()))
        draws = [epoch for rank in everyone for epoch in rank]
        yield equal(f"numbers that were drawn, {kind}", len(draws[0][0]) > 1, bound=True)
        yield from worker_randomness.repeated(draws)
