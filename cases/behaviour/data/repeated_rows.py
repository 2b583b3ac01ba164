"""The order in which trainers that generate read their prompts: each several times in a row, in batches, in rounds.

https://huggingface.co/docs/trl/grpo_trainer
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from cases.api import call
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Preference losses"


def rounds(order: Sequence[int], each: int, batch: int, times: int) -> list[int]:
    """Whole batches of an order, each several times, and each row of it several times in a row."""
    found: list[int] = []
    for begin in range(0, len(order) - batch + 1, batch):
        found += [row for row in order[begin : begin + batch] for _ in range(each)] * times
    return found


@call(GROUP, phase=Phase.LOAD, requires=("grpo", "repeat_sampler"))
def repeated_prompts(_ctx: Context) -> Iterator[Check]:
    """RepeatSampler gives each prompt mini_repeat_count times in a row, and each batch of them repeat_count times.

    An incomplete batch is left out. A seed determines the order, which is another one in the next epoch.
    """
    from trl.trainer.utils import RepeatSampler

    for rows, each, batch, times in product((4, 7, 9), (1, 3), (1, 2, 4), (1, 2)):
        title = f"{rows} rows, {each}, {batch}, {times}"
        plain = RepeatSampler(range(rows), each, batch, times, shuffle=False)
        yield equal(f"order, {title}", str(list(plain)), str(rounds(range(rows), each, batch, times)))
        yield equal(f"length, {title}", len(plain), len(list(plain)))
    made = [RepeatSampler(range(12), 2, 3, 2, shuffle=True, seed=seed) for seed in (5, 5, 6)]
    first, same, other = (list(each) for each in made)
    drawn = [row for begin in range(0, len(first), 12) for row in first[begin : begin + 6 : 2]]
    yield equal("rows of an epoch", str(sorted(drawn)), str(list(range(12))))
    yield equal("order in rounds", str(first), str(rounds(drawn, 2, 3, 2)))
    yield equal("the same order by the same seed", first == same, bound=True)
    yield equal("the same order by another seed", first == other, bound=False)
    yield equal("the same order in the next epoch", first == list(made[0]), bound=False)
