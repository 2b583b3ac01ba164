"""When generation ends, and what fills the rest: padding tokens of any id, and each rule of early_stopping.

https://huggingface.co/docs/transformers/main_classes/text_generation
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import stopping
from cases.model import tiny
from cases.space.verdict import Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
PADDINGS = (0, 9, 100)
BEAMS, LONGEST, SAME = 3, 12, 1e-5


def ending(ends: list[int]) -> Callable[[int, list[int]], bool]:
    return lambda _row, tokens: tokens[-1] in ends


@call(GROUP, phase=Phase.INFER)
def ends_with_any_padding(ctx: Context) -> Iterator[Check]:
    """A row that has ended is filled with the padding token, whatever its id; other rows stay as they are.

    In greedy generation and in sampling with a seed, whose random numbers ends do not change.
    """
    import torch

    model = stopping.loaded(ctx, pad_token_id=tiny.PADDING)
    for sampled, padding in product((False, True), PADDINGS):
        more: dict[str, Any] = {"do_sample": sampled, "pad_token_id": padding}
        torch.manual_seed(4)
        free = stopping.new_rows(model, eos_token_id=stopping.NONE, **more)
        ends = [free[0][1], free[1][3]]
        wanted = stopping.stopped(free, ending(ends), padding)
        torch.manual_seed(4)
        found = stopping.new_rows(model, eos_token_id=ends, **more)
        title = f"sampled {sampled}, padding {padding}"
        if not sampled:
            yield from stopping.same(title, found, wanted)
            continue
        # A token is drawn for ended rows too, so that the others are the same up to the longest of them.
        yield from stopping.same(title, found, [row[: len(found[0])] for row in wanted])


def searched(model: Any, ids: Any, rule: Any, ends: list[int]) -> tuple[float, int]:
    """The best score of a beam search without a penalty of length, and the number of its steps."""
    import torch

    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=BEAMS,
        do_sample=False,
        length_penalty=0.0,
        early_stopping=rule,
        max_new_tokens=LONGEST,
        eos_token_id=ends,
        pad_token_id=tiny.PADDING,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return float(found.sequences_scores[0]), len(found.scores)


@call(GROUP, phase=Phase.INFER)
def rules_of_early_stopping(ctx: Context) -> Iterator[Check]:
    """early_stopping=True ends a search with num_beams complete candidates; False and "never" look for better ones.

    Without a penalty of length, no longer sequence has a higher score than its beginning, so that False, which stops
    when a better one is unlikely, finds what "never" finds, in no more steps.
    """
    model = stopping.loaded(ctx, pad_token_id=tiny.PADDING)
    ends = list(range(20, 60))
    sooner = 0
    for row in range(stopping.ROWS):
        ids = stopping.prompts(model)[row : row + 1]
        score, steps = {}, {}
        for rule in (True, False, "never"):
            score[rule], steps[rule] = searched(model, ids, rule, ends)
        yield at_most(f"score off the best, early_stopping=False, row {row}", abs(score[False] - score["never"]), SAME)
        yield at_most(f"steps beyond those of never, row {row}", steps[False] - steps["never"], 0)
        yield at_most(f"steps beyond those of False, row {row}", steps[True] - steps[False], 0)
        yield at_most(f"score above the best, early_stopping=True, row {row}", score[True] - score["never"], SAME)
        sooner += steps[True] < steps["never"]
    yield at_least("rows that end sooner with early_stopping=True", sooner, 1)
