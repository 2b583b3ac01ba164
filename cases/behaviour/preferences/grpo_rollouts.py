"""GRPOTrainer on rollouts of a script: tokens of an environment that are not learned, and times and losses beside them.

https://huggingface.co/docs/trl/grpo_trainer#rollout-function
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import alignment, grpo, policies
from cases.behaviour.preferences.grpo import Definition, by_largest_length, by_row, by_token
from cases.space.options import Options
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Objective = Callable[[list[Any]], Any]

GROUP = "Preference losses"
NEEDS = ("grpo", "grpo_environment_mask")


def own(length: int) -> list[int]:
    """Which tokens of a completion the model wrote: 0 for those of the environment, every third from the second on."""
    return [int(place % 3 != 1) for place in range(length)]


def masked(objective: Objective) -> Objective:
    """The objective over the model's own tokens alone."""

    def of_own(tokens: list[Any]) -> Any:
        return objective([row[[place for place, wrote in enumerate(own(len(row))) if wrote]] for row in tokens])

    return of_own


class EnvironmentRollouts(grpo.Rollouts):
    """Rollouts that a script returns, with the mask of the environment's tokens, but for single tokens."""

    def roll_out(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """https://huggingface.co/docs/trl/grpo_trainer: the signature of a rollout function."""
        ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        rows = [(prompt, self.completion(prompt, place)) for place, prompt in enumerate(ids)]
        self.calls.append(rows)
        completions = [completion for _, completion in rows]
        masks = [own(len(each)) for each in completions]
        return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None, "env_mask": masks}


def rolled_out(ctx: Context, definition: Definition, kind: str, **more: Any) -> Iterator[Check]:
    rollouts = EnvironmentRollouts(ctx.place.rank)
    chosen = {"beta": definition.beta, "temperature": 1.0, "loss_type": kind, **more}
    chosen["use_bias_correction_kl"] = definition.corrected
    made, _ = grpo.trainer(ctx, chosen, rollout_func=rollouts.roll_out)
    both = policies.policies(ctx.cache, Options())
    yield from grpo.followed(made, rollouts, definition, both, ("reward",))


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def grpo_environment_tokens(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer learns none of the tokens that env_mask gives to the environment, by every average of its losses.

    They count neither in a mean nor in the divergence.
    """
    objectives: dict[str, Objective] = {"grpo": by_row, "bnpo": by_token, "dr_grpo": by_largest_length}
    for kind, objective in objectives.items():
        yield from rolled_out(ctx, Definition(masked(objective), 0.2), kind)
    yield from rolled_out(ctx, Definition(masked(by_token)), "dapo", **grpo.HALVES)


@call(GROUP, phase=Phase.BACKWARD, requires=("grpo",))
def grpo_step_times(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer logs the time of each step, of all its batches together, if it logs a time."""
    for accumulation in (1, 2):
        chosen = {"gradient_accumulation_steps": accumulation, "temperature": 1.0, "beta": 0.0}
        chosen["per_device_train_batch_size"] = 2 * grpo.GENERATIONS // accumulation
        made, _ = grpo.trainer(ctx, chosen)
        begin = time.perf_counter()
        made.train()
        whole = time.perf_counter() - begin
        times = [entry.get("step_time") for entry in made.state.log_history if "loss" in entry]
        if not alignment.source_mentions("GRPO", '"step_time"'):
            continue
        known = [each for each in times if each is not None]
        yield equal(f"steps with a time, {accumulation}", len(known), made.state.global_step)
        yield at_least(f"least time of a step, {accumulation}", min(known, default=0.0), 1e-4)
        yield at_most(f"times of all steps over the whole time, {accumulation}", sum(known) / whole, 1.0)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_off_policy_mask_threshold"))
def grpo_off_policy_rows(_ctx: Context) -> Iterator[Check]:
    """get_off_policy_mask keeps rows with a positive advantage, and others whose mean divergence per token is small.

    Equation 9 of https://arxiv.org/abs/2512.02556; tokens that are masked count neither in the sum nor in the number.
    """
    import torch

    trainer = alignment.named("GRPOTrainer")
    generator = torch.Generator().manual_seed(5)
    learned, old = (torch.randn(6, 9, generator=generator) for _ in range(2))
    lengths = torch.tensor([9, 7, 4, 2, 1, 5])
    mask = (torch.arange(9) < lengths[:, None]).long()
    advantages = torch.tensor([-1.0, 1.0, -0.5, -2.0, -0.1, 0.0])[:, None]
    means = [float((old - learned)[row, :length].double().mean()) for row, length in enumerate(lengths.tolist())]
    for threshold in (-0.5, 0.0, 0.1, 0.3, 0.6):
        found = trainer.get_off_policy_mask(advantages, learned, old, mask, threshold)
        wanted = [float(a) >= 0 or mean <= threshold for a, mean in zip(advantages, means, strict=True)]
        yield equal(f"rows that are kept, {threshold}", str(found.flatten().bool().tolist()), str(wanted))
