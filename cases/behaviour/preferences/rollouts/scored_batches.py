"""Which rows GRPOTrainer and RLOOTrainer score in one pass, with images too, and what one rank alone logs."""

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


def images_of(rows: Any) -> tuple[list[list[int]], list[int]]:
    """The sizes of the images of rows of token ids, one or two for each, and what each part of an image has.

    Both follow from the sum of a row's ids, which tells it from others.
    """
    sums = [int(each) for each in rows.sum(1).tolist()]
    sizes = [[[1, 1 + total % 3, 2 + place] for place in range(1 + total % 2)] for total in sums]
    parts = [total for total, own in zip(sums, sizes, strict=True) for _, high, wide in own for _ in range(high * wide)]
    return [size for own in sizes for size in own], parts


def with_images(made: Any) -> list[tuple[Any, Any, Any]]:
    """Give each generation's rows images, and collect the ids, parts and sizes that the model gets in training.

    The tiny model reads texts alone, so the images end before it.
    """
    import torch

    found: list[tuple[Any, Any, Any]] = []
    generate = made._generate_and_score_completions  # noqa: SLF001 - where a processor's images come from

    def generated(rows: Any) -> Any:
        batch = generate(rows)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        sizes, parts = images_of(ids)
        numbers = [1 + int(each) % 2 for each in ids.sum(1).tolist()]
        more = {"pixel_values": torch.tensor(parts, dtype=torch.float32)[:, None], "num_images": numbers}
        return {**batch, **more, "image_grid_thw": torch.tensor(sizes)}

    def note(_module: Any, positional: Any, named: dict[str, Any]) -> Any:
        parts, sizes = (named.pop(name, None) for name in ("pixel_values", "image_grid_thw"))
        if torch.is_grad_enabled():
            found.append((named["input_ids"], parts, sizes))
        return positional, named

    made._generate_and_score_completions = generated  # noqa: SLF001
    made.model.register_forward_pre_hook(note, with_kwargs=True)
    return found


@call("Preference losses", phase=Phase.FORWARD, requires=("rloo", "rollouts_of_images"))
def rollouts_keep_images(ctx: Context) -> Iterator[Check]:
    """Rows that are shuffled and split into batches keep their images, whose number and sizes differ, up to the model.

    A model like Qwen2-VL reads pixel_values of all parts of a batch's images, and image_grid_thw, their sizes.
    """
    for kind in KINDS:
        given = {**STILL, "per_device_train_batch_size": TRAINED, "gradient_accumulation_steps": 2, "max_steps": 2}
        made, _ = grpo.trainer(ctx, given, kind)
        passes = with_images(made)
        made.train()
        yield equal(f"passes with images, {kind}", len(passes), 4)
        for place, (ids, parts, sizes) in enumerate(passes):
            wanted = images_of(ids)
            held = [] if sizes is None else sizes.tolist()
            yield equal(f"sizes of images in pass {place}, {kind}", str(held), str(wanted[0]))
            values = [] if parts is None else [int(each) for each in parts.flatten().tolist()]
            yield equal(f"parts of images in pass {place}, {kind}", str(values), str(wanted[1]))
