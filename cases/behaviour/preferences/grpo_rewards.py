"""What GRPOTrainer passes to reward functions and does with what they return, and its evaluation.

https://huggingface.co/docs/trl/grpo_trainer#using-a-custom-reward-function.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from cases.api import call
from cases.behaviour.preferences import alignment, grpo, grpo_variants, policies
from cases.behaviour.preferences.grpo import GENERATIONS, GROUP, Definition, Follower
from cases.behaviour.preferences.grpo_metrics import usual
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context

TARGETS = (0.5, 1.25, 2.0, 2.75)  # a column of the data set, by prompt
SHORT = 3  # words up to which only one of two functions judges a completion


def words(ids: list[int]) -> str:
    return policies.text(ids).strip()


def target_of(prompt: str) -> float:
    return TARGETS[[each.strip() for each in grpo.prompts()].index(prompt.strip())]


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_trainer_state"))
def grpo_reward_arguments(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer passes prompts, completions, their ids, other columns and trainer_state to reward functions."""
    seen: list[dict[str, Any]] = []

    def judge(trainer_state: Any, **given: Any) -> list[float]:
        seen.append({**given, "step": trainer_state.global_step})
        return grpo.word_score(given["completions"])

    given = {**usual(), "reward_funcs": judge, "columns": {"target": list(TARGETS)}}
    made, rollouts = grpo.trainer(ctx, given)
    made.train()
    yield equal("steps that rewards see", str([each["step"] for each in seen]), "[0, 1]")
    for each, rows in zip(seen, rollouts.calls, strict=True):
        prompts = [words(prompt) for prompt, _ in rows]
        yield equal("prompts", str([text.strip() for text in each["prompts"]]), str(prompts))
        yield equal("ids of completions", str([list(ids) for ids in each["completion_ids"]]), str([i for _, i in rows]))
        yield equal("a column's values", str(each["target"]), str([target_of(prompt) for prompt in prompts]))


def far_from(target: float, completion: str) -> float:
    return abs(len(completion.split()) - target)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_log_metric"))
def grpo_logged_by_rewards(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer logs the mean of what a reward gives to log_metric, and saves log_extra with completions and rewards.

    log_completions writes a table for each logging step.
    """
    import pandas as pd

    def judge(completions: list[str], target: list[float], log_metric: Any, log_extra: Any, **_: Any) -> list[float]:
        log_extra("wanted", target)
        for completion, each in zip(completions, target, strict=True):
            log_metric("distance", far_from(each, completion))
        return grpo.word_score(completions)

    given = {**usual(), "reward_funcs": judge, "columns": {"target": list(TARGETS)}, "log_completions": True}
    made, rollouts = grpo.trainer(ctx, given)
    made.train()
    entries = [entry for entry in made.state.log_history if "loss" in entry]
    for step, (entry, rows) in enumerate(zip(entries, rollouts.calls, strict=True), start=1):
        prompts = [words(prompt) for prompt, _ in rows]
        texts = [words([each for each in ids if each >= policies.FIRST]) for _, ids in rows]
        wanted = [target_of(prompt) for prompt in prompts]
        distances = [far_from(*each) for each in zip(wanted, texts, strict=True)]
        yield at_most("logged distance off", alignment.off(entry["distance"], policies.mean(distances)), grpo.SAME)
        table = pd.read_parquet(Path(made.args.output_dir, "completions", f"completions_{step:05d}.parquet"))
        yield equal("steps of the table", str(set(table["step"].tolist())), str({step}))
        yield equal("prompts of the table", str([each.strip() for each in table["prompt"]]), str(prompts))
        yield equal("completions of the table", str([each.strip() for each in table["completion"]]), str(texts))
        yield equal("extra column of the table", str(table["wanted"].tolist()), str(wanted))
        completions = [ids for _, ids in rows]
        definition = Definition(grpo.by_row)
        for column, values in (
            ("judge", definition.rewards(completions)),
            ("advantage", definition.advantages(completions)),
        ):
            errors = (alignment.off(*pair) for pair in zip(table[column], values, strict=True))
            yield at_most(f"{column} of the table off", tolerance.worst(errors), grpo.SAME)


async def later_length_score(completions: list[str], **_: Any) -> list[float]:
    """A reward that waits, as for an answer of a server."""
    import asyncio

    await asyncio.sleep(0)
    return grpo_variants.length_score(completions)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_async_rewards"))
def grpo_async_rewards(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer awaits asynchronous reward functions, and adds their rewards to those of other functions."""
    definition = grpo_variants.OfTwoRewards(grpo.by_row)
    for judges in ([grpo.word_score, later_length_score], [_later(grpo.word_score), later_length_score]):
        yield from grpo.compared(ctx, definition, logged=("reward",), reward_funcs=judges, **grpo_variants.TWO)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_async_rewards"))
def grpo_async_reward_arguments(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer passes to an asynchronous reward function what it passes to any other, with the columns of rows."""
    seen: dict[str, list[dict[str, Any]]] = {"at once": [], "later": []}

    def judge(**given: Any) -> list[float]:
        seen["at once"].append(given)
        return grpo.word_score(given["completions"])

    async def judge_later(**given: Any) -> list[float]:
        seen["later"].append(given)
        return grpo.word_score(given["completions"])

    given = {**usual(), "reward_funcs": [judge, judge_later], "columns": {"target": list(TARGETS)}}
    made, _ = grpo.trainer(ctx, given)
    made.train()
    yield equal("calls of the asynchronous reward", len(seen["later"]), 2)
    for step, (now, later) in enumerate(zip(*seen.values(), strict=True)):
        for name in ("prompts", "completions", "completion_ids", "target"):
            yield equal(f"{name} of the asynchronous reward, step {step}", str(later.get(name)), str(now[name]))
        yield equal(f"names of its arguments, step {step}", str(sorted(later)), str(sorted(now)))


def _later(judge: Any) -> Any:
    async def later(**given: Any) -> Any:
        return judge(**given)

    return later


def of_short(completions: list[str], **_: Any) -> list[float | None]:
    """Judges short completions only; None is for those that it does not judge."""
    scores = grpo.word_score(completions)
    return [each if len(text.split()) <= SHORT else None for each, text in zip(scores, completions, strict=True)]


def of_long(completions: list[str], **_: Any) -> list[float | None]:
    lengths = grpo_variants.length_score(completions)
    return [each if len(text.split()) > SHORT else None for each, text in zip(lengths, completions, strict=True)]


@dataclass(frozen=True)
class ByLength(Definition):
    """Each completion has the reward of the function that judges it."""

    def rewards(self, completions: list[list[int]]) -> list[float]:
        lengths = [len([each for each in ids if each >= policies.FIRST]) for ids in completions]
        return [
            grpo.score(ids) if length <= SHORT else grpo_variants.length_of(ids)
            for ids, length in zip(completions, lengths, strict=True)
        ]


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_absent_rewards"))
def grpo_absent_rewards(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer leaves a function out of the rewards of completions for which it returns None.

    https://huggingface.co/docs/trl/grpo_trainer#example-5-reward-functions-for-multi-task-training.
    """
    yield from grpo.compared(ctx, ByLength(grpo.by_row), logged=("reward",), reward_funcs=[of_short, of_long])


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_num_generations_eval"))
def grpo_evaluation(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's evaluation gives the mean loss and reward of its batches, whatever the accumulation in training.

    A prompt has num_generations_eval completions there, by default num_generations.
    """
    every = {**grpo_variants.of_losses(), "bnpo": Definition(grpo.by_token, grpo.BETA)}
    for name, definition in every.items():
        yield from evaluated(ctx, name, definition)
    for name, definition in grpo_variants.of_losses(2).items():
        yield from evaluated(ctx, name, definition, num_generations_eval=2)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo",))
def grpo_evaluation_in_large_batches(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's evaluation gives the mean loss of all completions if batches have more rows than there are prompts.

    Each prompt is repeated, so that all batches are full.
    """
    yield from evaluated(ctx, "grpo", Definition(grpo.by_row, grpo.BETA), per_device_eval_batch_size=2 * GENERATIONS)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_entropy_coef"))
def grpo_evaluates_entropy_bonus(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's evaluation subtracts the bonus of entropy_coef from the loss, whatever the accumulation."""
    factor = grpo_variants.BONUSES[0]
    for name in ("grpo", "dr_grpo", "dapo"):
        definition = grpo_variants.Exploring(grpo_variants.BY_ROW_OR_STEP[name], grpo.BETA, factor=factor)
        yield from evaluated(ctx, name, definition, entropy_coef=factor)


def evaluated(ctx: Context, name: str, definition: Definition, **chosen: Any) -> Iterator[Check]:
    """Evaluate, and compare with the reference; by default in batches whose size divides the number of prompts."""
    given = {**usual(), "beta": definition.beta, "evaluated": True, "per_device_eval_batch_size": GENERATIONS}
    if "loss_type" in alignment.options_of("GRPO"):
        given["loss_type"] = name
    made, rollouts = grpo.trainer(ctx, {**given, **grpo.HALVES, **chosen})
    found = made.evaluate()
    follower = Follower(policies.policies(ctx.cache, Options()), definition)
    results = [follower.loss((True, rows)) for rows in rollouts.calls]
    for entry in made.state.log_history:
        found = {**entry, **found}
    expected = {"loss": policies.mean([float(loss) for loss, _ in results])}
    expected["reward"] = policies.mean([policies.mean(metrics["reward"]) for _, metrics in results])
    for metric, value in expected.items():
        off = alignment.off(found.get(f"eval_{metric}", float("inf")), value)
        yield at_most(f"evaluated {metric} off, {name} of {definition.group}", off, grpo.SAME)


WIDE = {"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1"}  # so that no cell is broken into lines
STEP = 42
PROMPTS, COMPLETIONS = ("the sky is", "the sun is", "the sea is"), ("blue", "in the sky", "wide")
REWARDS: Mapping[str, list[float]] = {"Right": [0.123, -1.456, 2.0], "Brief": [0.789, 0.101, 0.5]}
ADVANTAGES = [0.987, -0.654, 0.0]
WRITTEN = [["0.12", "0.79", "0.99"], ["-1.46", "0.10", "-0.65"], ["2.00", "0.50", "0.00"]]  # rounded, by hand
SOURCES = {"source": ["first", "second", "third"]}


def printed(**given: Any) -> str:
    from trl.trainer.utils import print_prompt_completions_sample

    shown = io.StringIO()
    with mock.patch.dict(os.environ, WIDE), contextlib.redirect_stdout(shown):
        print_prompt_completions_sample(step=STEP, **given)
    return shown.getvalue()


def cells(text: str) -> list[list[str]]:
    """The cells of each line of a table, whose frame is a line too."""
    lines = [line.strip().strip("│┃").replace("┃", "│") for line in text.splitlines()]
    rows = [[cell.strip() for cell in line.strip(" │").split("│")] for line in lines]
    return [row for row in rows if len(row) > 1]


def scored(**chosen: Any) -> dict[str, Any]:
    given = {"prompts": list(PROMPTS), "completions": list(COMPLETIONS), "advantages": list(ADVANTAGES)}
    return {**given, "rewards": {name: list(each) for name, each in REWARDS.items()}, **chosen}


@call("Metrics of TRL", phase=Phase.FORWARD, requires=("printed_completions",))
def completions_printed(_ctx: Context) -> Iterator[Check]:
    """print_prompt_completions_sample prints each completion with all its rewards and its advantage, by their names."""
    from trl.trainer.utils import print_prompt_completions_sample

    names = ["Prompt", "Completion", *REWARDS, "Advantage"]
    rows = [[*row[:2], *row[2]] for row in zip(PROMPTS, COMPLETIONS, WRITTEN, strict=True)]
    cases: dict[str, tuple[dict[str, Any], list[str], list[list[str]]]] = {"all": ({}, names, rows)}
    cases["one reward"] = (
        {"rewards": {"Brief": REWARDS["Brief"]}},
        [names[place] for place in (0, 1, 3, 4)],
        [[row[place] for place in (0, 1, 3, 4)] for row in rows],
    )
    if "extra" in inspect.signature(print_prompt_completions_sample).parameters:
        more = [[*row, source] for row, source in zip(rows, SOURCES["source"], strict=True)]
        cases["another column"] = ({"extra": SOURCES}, [*names, "source"], more)
    for title, (chosen, headings, wanted) in cases.items():
        text = printed(**scored(**chosen))
        found = cells(text)
        yield equal(f"columns of the printed table, {title}", str(found[:1]), str([headings]))
        yield equal(f"rows of the printed table, {title}", str(found[1:]), str(wanted))
        yield equal(f"number of the step, {title}", f"Step {STEP}" in text, bound=True)
    for number in (0, 1, 2, len(rows)):
        found = cells(printed(**scored(num_samples=number)))[1:]
        yield equal(f"rows of a sample of {number}", len(found), number)
        yield equal(f"rows of a sample of {number} that are none", len([row for row in found if row not in rows]), 0)
        yield equal(f"rows twice in a sample of {number}", len(found) - len({str(row) for row in found}), 0)
