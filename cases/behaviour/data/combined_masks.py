"""What SFTTrainer learns of a conversation whose completion has several turns, with both of its masks.

https://huggingface.co/docs/trl/sft_trainer#train-on-assistant-messages-only
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.data import seen
from cases.behaviour.data.chat_templates import OUT, SHORT, TALK, ids_of, learned, messages, supervised
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.behaviour.data.chat_templates import Turn

GROUP = "Chat templates"
AGAIN: Sequence[Turn] = (("user", (30, 31)), ("assistant", (32,)))
# Prompts and completions. Earlier answers are in a prompt; in a completion are several answers, and a user's turn.
TALKS: Sequence[tuple[Sequence[Turn], Sequence[Turn]]] = (
    ((*SHORT, *TALK[1:2]), (*TALK[2:], *AGAIN)),
    (TALK[:2], TALK[2:3]),
)
CUT = 14  # tokens, within the first completion


def labels_of(prompt: Sequence[Turn], completion: Sequence[Turn], *, both: bool) -> list[int]:
    """The assistant's tokens, of the completion alone if both masks count."""
    whole, begin = learned((*prompt, *completion)), len(ids_of(prompt))
    return [*[OUT] * begin, *whole[begin:]] if both else whole


def filled(rows: Sequence[Sequence[int]], filler: int) -> list[list[int]]:
    width = max(map(len, rows))
    return [[*row, *[filler] * (width - len(row))] for row in rows]


@call(GROUP, phase=Phase.FORWARD, requires=("assistant_only_loss", "completion_only_loss"))
def sft_answers_of_completions(ctx: Context) -> Iterator[Check]:
    """With assistant_only_loss, SFTTrainer learns the answers in a completion; a prompt's answers stay out.

    With completion_only_loss=False, those of the prompt are learned too. max_length cuts ids and labels together.
    """
    rows = {
        "prompt": [messages(prompt) for prompt, _ in TALKS],
        "completion": [messages(completion) for _, completion in TALKS],
    }
    every: tuple[dict[str, Any], ...] = (
        {},
        {"completion_only_loss": True},
        {"completion_only_loss": False},
        {"completion_only_loss": True, "max_length": CUT},
    )
    for chosen in every:
        longest, both = chosen.get("max_length"), chosen.get("completion_only_loss", True)
        ids = [ids_of((*prompt, *completion))[:longest] for prompt, completion in TALKS]
        labels = [labels_of(*talk, both=both)[:longest] for talk in TALKS]
        trainer = supervised(ctx, rows, assistant_only_loss=True, **chosen)
        batch = next(iter(trainer.get_train_dataloader()))
        yield seen.same_rows(f"ids, {chosen}", batch["input_ids"], filled(ids, tiny.PADDING))
        yield seen.same_rows(f"labels, {chosen}", batch["labels"], filled(labels, OUT))
        count = sum(label != OUT for row in labels for label in row)
        yield equal(f"learned tokens, {chosen}", int((batch["labels"] != OUT).sum()), count)
