"""Batches of BatchRebalanceSampler: what its documentation promises of their rows, sizes and costs on every rank.

https://huggingface.co/docs/transformers/main_classes/trainer
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Order of the rows"
LENGTHS = [5 + 37 * n % 101 + 400 * (n % 17 == 0) for n in range(83)]
QUADRATIC = 0.001
NEAR = 0.5  # of the spread of equal parts: "near-equal cost"; the closest groups of neighbours have 0.04 to 0.27 of it
# Ranks, micro-batches of a step, rows of a step.
SHAPES = ((1, 1, 8), (2, 1, 16), (2, 3, 24), (4, 2, 20), (3, 2, 6))


def cost(rows: Sequence[int]) -> float:
    """Rows padded to the longest one, and the attention's quadratic part."""
    longest = max(LENGTHS[row] for row in rows)
    return len(rows) * longest * (1 + QUADRATIC * longest)


def spread(groups: Sequence[Sequence[int]]) -> float:
    costs = [cost(rows) for rows in groups]
    return max(costs) - min(costs)


def batches(shape: tuple[int, int, int], *, epoch: int = 0, **more: Any) -> list[list[list[int]]]:
    """The batches of every rank."""
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    ranks, steps, rows = shape
    found = []
    for rank in range(ranks):
        made = BatchRebalanceSampler(LENGTHS, rows, ranks, steps, rank=rank, **more)
        made.set_epoch(epoch)
        found.append([[*batch] for batch in made])
        assert len(made) == len(found[-1])  # noqa: S101 - the length of a sampler is what it yields
    return found


def steps_of(found: Sequence[Sequence[Sequence[int]]], steps: int) -> Iterator[list[list[list[int]]]]:
    """For each step, the batches of all ranks by place within the step."""
    for begin in range(0, len(found[0]), steps):
        yield [[[*rank[begin + place]] for rank in found] for place in range(steps)]


def equal_parts(rows: Sequence[int], count: int) -> list[list[int]]:
    """The rows by falling length, in groups of equal size."""
    ordered = sorted(rows, key=lambda row: -LENGTHS[row])
    sizes = [len(ordered) // count + (n < len(ordered) % count) for n in range(count)]
    ends = [*itertools.accumulate(sizes)]
    return [ordered[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@call(GROUP, phase=Phase.FORWARD, requires=("balanced_batches",))
def balanced_batches(_ctx: Context) -> Iterator[Check]:
    """Each step has the next rows, every row on one rank, in groups of similar lengths whose costs differ little.

    Micro-batches of higher cost come first. No step has costs farther apart than groups of equal size have.
    """
    for shape, shuffle in itertools.product(SHAPES, (False, True)):
        ranks, steps, rows = shape
        found = batches(shape, shuffle=shuffle)
        title = f"{ranks} ranks, {steps} micro-batches, {rows} rows, shuffle={shuffle}"
        yield equal(f"micro-batches, {title}", len(found[0]), len(LENGTHS) // rows * steps)
        seen: list[int] = []
        worse = falling = mixed = 0
        apart = equally = 0.0
        for step in steps_of(found, steps):
            groups = [rank for place in step for rank in place]
            own = [row for rows_of in groups for row in rows_of]
            seen += sorted(own)
            parts = equal_parts(own, len(groups))
            worse += spread(groups) > spread(parts) + 1e-9
            apart, equally = apart + spread(groups), equally + spread(parts)
            costs = [[cost(rows_of) for rows_of in place] for place in step]
            falling += any(min(a) < max(b) - 1e-9 for a, b in itertools.pairwise(costs))
            ordered = sorted(groups, key=lambda rows_of: -max(LENGTHS[row] for row in rows_of))
            mixed += any(
                min(LENGTHS[row] for row in a) < max(LENGTHS[row] for row in b) for a, b in itertools.pairwise(ordered)
            )
        whole = len(LENGTHS) // rows * rows
        yield equal(f"rows seen once, {title}", len({*seen}), whole)
        yield equal(f"rows, {title}", len(seen), whole)
        if not shuffle:
            yield equal(f"rows are the next ones, {title}", seen == [*range(whole)], bound=True)
        yield equal(f"steps farther apart than equal parts, {title}", worse, 0)
        if rows > ranks * steps > 1:  # else there is nothing to balance
            yield at_most(f"spread of costs over that of equal sizes, {title}", apart / equally, NEAR)
        yield equal(f"steps whose later micro-batches cost more, {title}", falling, 0)
        yield equal(f"steps with groups of mixed lengths, {title}", mixed, 0)


@call(GROUP, phase=Phase.FORWARD, requires=("balanced_batches",))
def balanced_batches_at_the_ends(_ctx: Context) -> Iterator[Check]:
    """drop_last=False keeps the last rows, and repeats the first ones if there are fewer than batches; epochs differ.

    Seeds and epochs decide the order, and no rank sees another one.
    """
    for shape in SHAPES:
        ranks, steps, rows = shape
        found = batches(shape, shuffle=False, drop_last=False)
        title = f"{ranks} ranks, {steps} micro-batches, {rows} rows"
        last = [row for place in [*steps_of(found, steps)][-1] for rank in place for row in rank]
        left = [*range(len(LENGTHS) // rows * rows, len(LENGTHS))]
        wanted = [*left, *range(max(0, ranks * steps - len(left)))]
        yield equal(f"last rows, {title}", str(sorted(last)), str(sorted(wanted)))
        sizes = {len(batch) for rank in found for batch in rank}
        yield at_most(f"empty batches, {title}", float(0 in sizes), 0.0)
        orders = {
            str([sorted(r for place in step for rank in place for r in rank) for step in steps_of(each, steps)])
            for each in (batches(shape, epoch=epoch, seed=seed) for epoch, seed in ((0, 1), (1, 1), (0, 3), (0, 1)))
        }
        yield equal(f"orders of three epochs, {title}", len(orders), 3)
