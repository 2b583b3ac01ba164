"""TRL's ready reward functions by their documented formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.api import call
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Rewards of TRL"
SAME = 1e-12
IDS: tuple[list[int], ...] = ([1, 2, 3, 4], [5] * 5, [1, 2, 1, 2, 1, 2], [7, 7], [], [3], [1, 2, 3, 1, 2, 3, 4])


def apart(name: str, found: Sequence[float], wanted: Sequence[float]) -> Check:
    pairs = zip(found, wanted, strict=True)
    return at_most(name, max(abs(one - other) for one, other in pairs), SAME)


@call(GROUP, phase=Phase.LOAD, requires=("repetition_reward",))
def repetition_rewards(ctx: Context) -> Iterator[Check]:
    """The penalty of repetition is the share of n-grams that occurred before, times its largest value.

    https://arxiv.org/abs/2502.03373, appendix C.2
    """
    from trl.rewards import get_repetition_penalty_reward

    del ctx
    for size in (1, 2, 3):
        for most in (-1.0, -0.3, 0.0):
            wanted = []
            for ids in IDS:
                grams = [tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)]
                repeated = sum(gram in grams[:place] for place, gram in enumerate(grams))
                wanted.append(most * repeated / len(grams) if grams else 0.0)
            found = get_repetition_penalty_reward(ngram_size=size, max_penalty=most)(completion_ids=list(IDS))
            yield apart(f"penalties off, {size}, {most}", found, wanted)
    try:
        get_repetition_penalty_reward(max_penalty=0.5)
    except ValueError:
        refused = True
    else:
        refused = False
    yield equal("a positive penalty is refused", refused, bound=True)


@call(GROUP, phase=Phase.LOAD, requires=("overlong_reward",))
def overlong_rewards(ctx: Context) -> Iterator[Check]:
    """The penalty of long completions falls in a line to -1 over the last tokens, and stays there.

    https://arxiv.org/abs/2503.14476, equation 13
    """
    from trl.rewards import get_soft_overlong_punishment

    del ctx
    for most, cache in ((20, 8), (16, 16), (12, 0)):
        lengths = range(26)
        wanted = []
        for length in lengths:
            beyond = length - (most - cache)
            inside = 0.0 if beyond <= 0 else -beyond / cache if cache else -1.0
            wanted.append(-1.0 if length > most else inside)
        found = get_soft_overlong_punishment(most, cache)(completion_ids=[[1] * length for length in lengths])
        yield apart(f"penalties off, {most} and {cache}", found, wanted)


@call(GROUP, phase=Phase.LOAD, requires=("format_reward",))
def format_rewards(ctx: Context) -> Iterator[Check]:
    """The reward of a format wants one block of thoughts at the start, and text after it or none."""
    from trl.rewards import think_format_reward

    del ctx
    texts = {
        "<think>\nA thought.\n</think>\nAn answer.": 1.0,
        "<think>A thought.</think>": 1.0,
        "<think>\n\n</think>An\nanswer.\nMore.": 1.0,
        "<think>\nA thought.\nAn answer.": 0.0,
        "An answer. <think>A thought.</think>": 0.0,
        "<think>A thought. <think>Another.</think> An answer.": 0.0,
        "A thought.</think> An answer.": 0.0,
        "<THINK>A thought.</THINK> An answer.": 0.0,
        "": 0.0,
    }
    found = think_format_reward([[{"role": "assistant", "content": text}] for text in texts])
    yield apart("rewards off", found, list(texts.values()))
