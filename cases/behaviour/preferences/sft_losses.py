"""SFTTrainer's losses where they are more than the cross-entropy of all tokens.

Only completions, only answers, losses weighted by probability, and documents that share a row without padding. The
reference reads each document alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, policies
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context

    TokenLoss = Callable[[Any], Any]  # of log p of the learned tokens

GROUP = "SFT losses"
LENGTHS = ((5, 4), (2, 9), (7, 2), (3, 5), (4, 3), (6, 1), (1, 8), (8, 2))  # of prompts and completions
DOCUMENTS = (9, 4, 11, 7, 3, 12, 6, 5)
HALVES: Mapping[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
PACKED = 16  # tokens of a packed row
# Roles are words of the tokeniser. The marked part is the answer with its end.
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}w5 "
    "{% generation %}{{ message['content'] }} </s>{% endgeneration %} "
    "{% else %}w4 {{ message['content'] }} {% endif %}{% endfor %}"
)


@dataclass(frozen=True)
class MaskedRow:
    """Tokens, and whether each is learned."""

    ids: list[int]
    learned: list[bool]


def completions() -> list[tuple[list[int], list[int]]]:
    """Prompts and completions, which end with the end token."""
    return [(prompt, [*answer, tiny.END]) for prompt, answer in policies.texts(LENGTHS)]


def loss_of(both: policies.Policies, token_loss: TokenLoss) -> Callable[[list[MaskedRow]], tuple[Any, int]]:
    """The sum of the losses of the learned tokens, and their number."""
    import torch

    def loss(batch: list[MaskedRow]) -> tuple[Any, int]:
        parts = []
        for row in batch:
            found = policies.log_probabilities(both.policy, row.ids[:1], row.ids[1:])
            parts.append(token_loss(found[torch.tensor(row.learned[1:])]))
        return sum(each.sum() for each in parts), sum(len(each) for each in parts)

    return loss


def negative(found: Any) -> Any:
    return -found


def weighted(found: Any) -> Any:
    """Dynamic fine-tuning, equation 9 of https://arxiv.org/abs/2508.05629: the probability is a constant factor."""
    return -found.detach().exp() * found


def compared(
    ctx: Context, steps: list[list[MaskedRow]], data: Any, token_loss: TokenLoss = negative, **chosen: Any
) -> Iterator[Check]:
    """Train two steps, each on the mean over all its learned tokens, and compare."""
    both = policies.policies(ctx.cache, Options())
    sums = loss_of(both, token_loss)

    def mean_loss(batch: list[MaskedRow]) -> tuple[Any, policies.Metrics]:
        total, number = sums(batch)
        return total / number, {}

    expected = policies.train(both.trained, [[step] for step in steps], mean_loss, alignment.RATE)
    more = {"tokenizer": chosen.pop("tokenizer")} if "tokenizer" in chosen else {}
    more |= {"compute_loss_func": chosen.pop("compute_loss_func")} if "compute_loss_func" in chosen else {}
    more |= {"model": chosen.pop("model")} if "model" in chosen else alignment.fresh(ctx)
    made = alignment.create(
        ctx,
        "SFT",
        {"remove_unused_columns": True, **chosen},
        **more,
        train_dataset=data,
    )
    yield from alignment.as_defined(alignment.trained(alignment.fill(made)), expected)


def completion_steps(
    pairs: list[tuple[list[int], list[int]]] | None = None,
) -> tuple[list[list[MaskedRow]], Any]:
    pairs = pairs or completions()
    rows = [MaskedRow([*prompt, *answer], [False] * len(prompt) + [True] * len(answer)) for prompt, answer in pairs]
    prompts, answers = ([policies.text(pair[part]) for pair in pairs] for part in (0, 1))
    data = ingredients.dataset(prompt=prompts, completion=answers)
    return [rows[:4], rows[4:]], data


@call(GROUP, phase=Phase.FORWARD, requires=("sft_completion_only_loss",))
def sft_completion_loss(ctx: Context) -> Iterator[Check]:
    """SFTTrainer's completion_only_loss is the mean over the tokens of the completions of a step, with their end.

    https://huggingface.co/docs/trl/sft_trainer#train-on-completion-only.
    """
    steps, data = completion_steps()
    yield from compared(ctx, steps, data, completion_only_loss=True, **HALVES)


@call(GROUP, phase=Phase.FORWARD, requires=("sft_dft",))
def sft_dft(ctx: Context) -> Iterator[Check]:
    """SFTTrainer's loss_type="dft" multiplies the loss of each token by its probability, which gets no gradient."""
    steps, data = completion_steps()
    yield from compared(ctx, steps, data, weighted, completion_only_loss=True, loss_type="dft", **HALVES)


def squared(found: Any) -> Any:
    return found**2


@call(GROUP, phase=Phase.FORWARD, requires=("sft_completion_only_loss", "sft_compute_loss_func"))
def sft_own_loss(ctx: Context) -> Iterator[Check]:
    """SFTTrainer trains on compute_loss_func, of the model's logits, the labels and the learned tokens of a step."""

    def own(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        logits, wanted = outputs.logits[:, :-1].float(), labels[:, 1:]
        found = logits.log_softmax(-1).gather(-1, wanted.clamp_min(0)[..., None])[..., 0]
        return squared(found[wanted != ingredients.IGNORED]).sum() / num_items_in_batch

    steps, data = completion_steps()
    yield from compared(ctx, steps, data, squared, completion_only_loss=True, compute_loss_func=own, **HALVES)


@call(GROUP, phase=Phase.FORWARD, requires=("sft_assistant_only_loss",))
def sft_assistant_loss(ctx: Context) -> Iterator[Check]:
    """SFTTrainer's assistant_only_loss covers every answer of a conversation and nothing else.

    https://huggingface.co/docs/trl/sft_trainer#train-on-assistant-messages-only.
    """
    from datasets import Dataset

    turns = [completions()[row : row + 2] for row in range(8)]  # the last has one turn
    rows, conversations = [], []
    for conversation in turns:
        ids: list[int] = []
        learned: list[bool] = []
        messages = []
        for prompt, answer in conversation:
            ids += [4, *prompt, 5, *answer]
            learned += [False] * (len(prompt) + 2) + [True] * len(answer)
            messages.append({"role": "user", "content": policies.text(prompt).strip()})
            messages.append({"role": "assistant", "content": policies.text(answer[:-1]).strip()})
        rows.append(MaskedRow(ids, learned))
        conversations.append(messages)
    named = ingredients.tokenizer()
    named.chat_template = TEMPLATE
    data = Dataset.from_dict({"messages": conversations})
    more: dict[str, Any] = {"assistant_only_loss": True, "per_device_train_batch_size": 4, "max_length": 64}
    yield from compared(ctx, [rows[:4], rows[4:]], data, tokenizer=named, **more)


@call(GROUP, phase=Phase.FORWARD, requires=("sft_max_length",))
def sft_skips_preparation(ctx: Context) -> Iterator[Check]:
    """With skip_prepare_dataset, SFTTrainer trains on the ids of rows as they are, also beyond max_length.

    https://huggingface.co/docs/trl/sft_trainer: "preparation is skipped and the collator is expected to handle the
    dataset as is". Without labels, every token is learned.
    """
    from datasets import Dataset

    rows = [MaskedRow(ids, [False] + [True] * (len(ids) - 1)) for ids in documents()]
    data = Dataset.from_dict({"input_ids": [row.ids for row in rows]})
    more: dict[str, Any] = {"dataset_kwargs": {"skip_prepare_dataset": True}, "max_length": 6}
    yield from compared(ctx, [rows[:4], rows[4:]], data, per_device_train_batch_size=4, **more)


def documents() -> list[list[int]]:
    return [[*policies.tokens(length, 70 + row), tiny.END] for row, length in enumerate(DOCUMENTS)]


@call(GROUP, phase=Phase.FORWARD, requires=("sft_packing_strategy", "packed_attention"))
def sft_packing(ctx: Context) -> Iterator[Check]:
    """SFTTrainer's packed documents neither attend to each other nor predict each other's first token.

    https://huggingface.co/docs/trl/reducing_memory_usage#packing. All rows are one batch, in any order.
    """
    rows = [MaskedRow(ids, [False] + [True] * (len(ids) - 1)) for ids in documents()]
    data = ingredients.dataset(text=[policies.text(ids) for ids in documents()])
    more: dict[str, Any] = {
        "packing": True,
        "packing_strategy": "bfd",
        "max_length": PACKED,
        "per_device_train_batch_size": 8,
    }
    yield from compared(ctx, [rows, rows], data, **more)


@call(GROUP, phase=Phase.FORWARD, requires=("sft_padding_free", "packed_attention"))
def sft_padding_free_trains(ctx: Context) -> Iterator[Check]:
    """SFTTrainer's padding_free gives the loss of padded rows."""
    rows = [MaskedRow(ids, [False] + [True] * (len(ids) - 1)) for ids in documents()]
    data = ingredients.dataset(text=[policies.text(ids) for ids in documents()])
    more: dict[str, Any] = {"padding_free": True, "max_length": None, "per_device_train_batch_size": 4}
    yield from compared(ctx, [rows[:4], rows[4:]], data, **more)
