"""How many rows GRPOTrainer and RLOOTrainer score in one pass, and what rewards log on one rank alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import alignment, grpo, policies
from cases.behaviour.preferences.rollouts.generations import KINDS, STILL
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

TRAINED, JUDGED = grpo.GENERATIONS, 2 * grpo.GENERATIONS  # rows of a batch in training and in evaluation
WIDE = 4 * grpo.GENERATIONS  # rows, which are more than any row has tokens


def rows_of_passes(model: Any) -> set[int]:
    """A set that collects how many rows the passes of a model read from now on."""
    found: set[int] = set()

    def note(_module: Any, _positional: Any, named: dict[str, Any]) -> None:
        found.add(len(named["input_ids"]))

    model.register_forward_pre_hook(note, with_kwargs=True)
    return found


@call("Preference losses", phase=Phase.FORWARD, requires=("rloo", "rloo_steps_per_generation"))
def rollouts_scored_in_batches(ctx: Context) -> Iterator[Check]:
    """Scoring what several batches generated needs no larger pass than training on one, nor does an evaluation.

    Batches of an evaluation may be larger. A batch of many short rows is one pass.
    """
    for kind in KINDS:
        given: dict[str, Any] = {**STILL, "beta": grpo.BETA, "num_iterations": 2, "steps_per_generation": 2}
        given |= {"per_device_train_batch_size": TRAINED, "per_device_eval_batch_size": JUDGED, "evaluated": True}
        made, _ = grpo.trainer(ctx, {**given, "max_steps": 1}, kind)
        found = rows_of_passes(made.model)
        made.train()
        yield equal(f"rows of passes in training, {kind}", str(found), str({TRAINED}))
        found.clear()
        made.evaluate()
        yield equal(f"rows of passes in evaluation, {kind}", str(found), str({JUDGED}))
        chosen = {"per_device_train_batch_size": WIDE, "max_steps": 1}
        made, _ = grpo.trainer(ctx, {**STILL, **chosen}, kind)
        found = rows_of_passes(made.model)
        made.train()
        yield equal(f"rows of passes of {WIDE} short rows, {kind}", str(found), str({WIDE}))


@call("Metrics of TRL", phase=Phase.FORWARD, ranks=2, requires=("grpo", "grpo_log_metric"))
def grpo_logged_by_one_rank(ctx: Context) -> Iterator[Check]:
    """What a reward logs on one rank alone is logged: the mean of its numbers, and a column that lacks other rows."""
    import pandas as pd

    first = ctx.place.rank == 0

    def judge(completions: list[str], log_metric: Any, log_extra: Any, **_: Any) -> list[float]:
        scores: list[float] = grpo.word_score(completions)
        if first:
            log_extra("scored", [str(each) for each in scores])
            for each in scores:
                log_metric("scores", each)
        return scores

    given = {**STILL, "reward_funcs": judge, "log_completions": True, "max_steps": 1}
    given |= {"per_device_train_batch_size": grpo.GENERATIONS, "ddp_find_unused_parameters": False}
    made, rollouts = grpo.trainer(ctx, given)
    made.train()
    if not first:
        return
    entry = next(entry for entry in made.state.log_history if "loss" in entry)
    scores = [grpo.score(ids) for _, ids in rollouts.calls[0]]
    yield at_most("logged scores off", alignment.off(entry["scores"], policies.mean(scores)), grpo.SAME)
    table = pd.read_parquet(Path(made.args.output_dir, "completions", "completions_00001.parquet"))
    found = [None if pd.isna(each) else each for each in table["scored"]]
    yield equal("extra column", str(found), str([*map(str, scores), *[None] * len(scores)]))
