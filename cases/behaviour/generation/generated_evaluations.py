"""Seq2SeqTrainer's evaluation by generation: what it generates, which setting decides, and what the metrics get.

https://huggingface.co/docs/transformers/main_classes/trainer#transformers.Seq2SeqTrainer
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.trainers import stock_trainer
from cases.model import architectures, tiny
from cases.model.data import IGNORED
from cases.reference import models
from cases.reference.network import Batch
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context
    from cases.reference.network import Network

    Collator = Callable[[Sequence[dict[str, Any]]], dict[str, Any]]

GROUP = "Trainer: evaluation"
ROWS, BATCH = 4, 2
LONGEST = 7  # tokens of an answer, with its start
START = (0,)  # T5's decoder begins with the padding token
PROMPT = (0, 9, 21)  # a beginning of an answer that the user gives
BEAMS = 3
SAME = 1e-4  # relative: T5 has twice as many parts in a row as the other models


def question(number: int) -> dict[str, Any]:
    """A row whose answer is the text of the next one, of another length."""
    return {"input_ids": stock_trainer.row(number)["input_ids"], "labels": stock_trainer.row(number + 1)["input_ids"]}


def with_decoder_inputs(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batch as DataCollatorForSeq2Seq makes it with a model: the decoder's inputs are the labels, shifted."""
    batch = stock_trainer.padded(features)
    return {**batch, "decoder_input_ids": architectures.shifted(batch["labels"].clamp_min(0))}


def with_prompts(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batch without labels whose answers begin with ``PROMPT``."""
    import torch

    batch = stock_trainer.padded(features)
    del batch["labels"]
    return {**batch, "decoder_input_ids": torch.tensor([PROMPT] * len(features))}


def without_labels(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    batch = stock_trainer.padded(features)
    del batch["labels"]
    return batch


def scored(network: Network, number: int, begun: Sequence[int]) -> Any:
    """Log p of the token behind the beginning of an answer: float64, (vocabulary)."""
    import torch

    ids = stock_trainer.row(number)["input_ids"][None]
    batch = Batch(ids=ids, real=torch.ones_like(ids).bool(), decoder_ids=torch.tensor([list(begun)]))
    return models.logits(network, batch)[0, -1].log_softmax(-1)


def greedy(
    network: Network, number: int, longest: int = LONGEST, begun: tuple[int, ...] = START, end: int = tiny.END
) -> list[int]:
    """The answer with its beginning: the likeliest token each time, up to the end token or ``longest`` tokens."""
    found = list(begun)
    while len(found) < longest and (len(found) == len(begun) or found[-1] != end):
        found.append(int(scored(network, number, found).argmax()))
    return found


def by_beams(network: Network, number: int, longest: int) -> list[int]:
    """The likeliest of the answers that ``BEAMS`` beams keep, none of which ends."""
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, START)]
    for _ in range(longest - 1):
        longer = [
            (score + value, (*ids, token))
            for score, ids in beams
            for token, value in enumerate(scored(network, number, ids).tolist())
            if token != tiny.END
        ]
        beams = sorted(longer, reverse=True)[:BEAMS]
    return list(beams[0][1])


def loss(network: Network, batches: Sequence[Sequence[int]]) -> float:
    """The mean over the rows of their batch's mean cross entropy per token of the answers."""
    import torch

    total = 0.0
    for batch in batches:
        found = []
        for number in batch:
            row = question(number)
            ids, labels = row["input_ids"][None], row["labels"][None]
            given = Batch(ids=ids, real=torch.ones_like(ids).bool(), decoder_ids=architectures.shifted(labels))
            chances = models.logits(network, given)[0].log_softmax(-1)
            found.append(-chances.gather(-1, labels[0][:, None]))
        total += float(torch.cat(found).mean()) * len(batch)
    return total / sum(map(len, batches))


def trainer(ctx: Context, collator: Collator = stock_trainer.padded, **more: Any) -> Any:
    """A Seq2SeqTrainer on T5 that generates in evaluations."""
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

    os.environ.update(front_ends.launched(ctx.place))
    usual = {"predict_with_generate": True, "per_device_eval_batch_size": BATCH}
    made = stock_trainer.arguments(ctx, Seq2SeqTrainingArguments, **{**usual, **more})
    return Seq2SeqTrainer(model=stock_trainer.model(ctx, "t5"), args=made, data_collator=collator)


def bare(rows: Any, wanted: Sequence[Sequence[int]]) -> list[list[int]]:
    """Padded rows without what is behind the wanted tokens, if that is padding alone."""
    found = []
    for row, tokens in zip(rows.tolist(), wanted, strict=False):
        is_padded = set(row[len(tokens) :]) <= {tiny.PADDING, IGNORED}
        found.append(row[: len(tokens)] if is_padded else row)
    return found


def answers(found: Any, wanted: Sequence[Sequence[int]], title: str) -> Iterator[Check]:
    yield equal(f"rows of answers, {title}", len(found), len(wanted))
    yield equal(f"answers, {title}", str(bare(found, wanted)), str([list(each) for each in wanted]))


def evaluated(ctx: Context, collator: Collator, title: str, count: int = ROWS) -> Iterator[Check]:
    """Evaluate and predict rows with labels; compare answers, labels, metrics and the loss."""
    seen: list[Any] = []

    def compute(found: Any) -> dict[str, float]:
        seen.append(found)
        return {"answers": float(len(found.predictions)), "begun": float((found.predictions[:, 0] == 0).sum())}

    network = stock_trainer.Reference(ctx, "t5").network
    rows = [question(number) for number in range(count)]
    made = trainer(ctx, collator, generation_max_length=LONGEST)
    made.compute_metrics = compute
    metrics = made.evaluate(rows)
    predicted = made.predict(rows)
    wanted = [greedy(network, number) for number in range(count)]
    labels = [row["labels"].tolist() for row in rows]
    for name, found in (("evaluate", seen[0]), ("predict", predicted)):
        yield from answers(found.predictions, wanted, f"{name}, {title}")
        yield equal(f"labels, {name}, {title}", str(bare(found.label_ids, labels)), str(labels))
    yield equal(f"answers counted, {title}", metrics["eval_answers"], float(count))
    yield equal(f"answers that begin, {title}", predicted.metrics["test_begun"], float(count))
    exact = loss(network, [list(range(count))[begin : begin + BATCH] for begin in range(0, count, BATCH)])
    for name, value in (("evaluate", metrics["eval_loss"]), ("predict", predicted.metrics["test_loss"])):
        yield at_most(f"loss off, {name}, {title}", abs(value / exact - 1), SAME)


@call(GROUP, phase=Phase.INFER, requires=("model_t5",))
def seq2seq_evaluates_answers(ctx: Context) -> Iterator[Check]:
    """With predict_with_generate, Seq2SeqTrainer generates each answer from its start, whatever the decoder's inputs.

    Metrics get the answers and the labels of each row, and the loss is that of the labels.
    """
    yield from evaluated(ctx, stock_trainer.padded, "labels alone")
    yield from evaluated(ctx, with_decoder_inputs, "decoder inputs too")


@call(GROUP, phase=Phase.INFER, requires=("model_t5",), ranks=2)
def seq2seq_evaluates_answers_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, Seq2SeqTrainer's metrics get the answers and labels of all rows, in order."""
    yield from evaluated(ctx, with_decoder_inputs, "decoder inputs too", 2 * BATCH * ctx.place.world_size)


@call(GROUP, phase=Phase.INFER, requires=("model_t5",))
def seq2seq_settings_of_answers(ctx: Context) -> Iterator[Check]:
    """An argument of predict decides over generation_max_length and generation_num_beams, these over the model's.

    generation_config takes the place of the model's settings.
    """
    from transformers import GenerationConfig

    network = stock_trainer.Reference(ctx, "t5").network
    numbers = range(ROWS)
    rows = [question(number) for number in numbers]

    whole = [greedy(network, number) for number in numbers]
    made = trainer(ctx, generation_max_length=LONGEST)
    for longest, given in ((LONGEST, {}), (5, {"max_length": 5}), (4, {"max_new_tokens": 3})):
        wanted = [each[:longest] for each in whole]
        yield from answers(made.predict(rows, **given).predictions, wanted, f"predict({given})")

    best = [by_beams(network, number, 4) for number in numbers]
    changed = sum(each[:4] != other for each, other in zip(whole, best, strict=True))
    yield at_least("answers that beams change", changed, 1)
    more: dict[str, Any] = {"max_new_tokens": 3, "suppress_tokens": [tiny.END]}
    yield from answers(made.predict(rows, num_beams=BEAMS, **more).predictions, best, "num_beams of predict")
    found = trainer(ctx, generation_num_beams=BEAMS).predict(rows, **more).predictions
    yield from answers(found, best, "generation_num_beams")

    end = whole[0][2]
    settings = GenerationConfig(max_length=6, eos_token_id=end, pad_token_id=tiny.PADDING, decoder_start_token_id=0)
    wanted = [greedy(network, number, 6, end=end) for number in numbers]
    yield equal("tokens of an ended answer", len(wanted[0]), 3)
    found = trainer(ctx, generation_config=settings).predict(rows).predictions
    yield from answers(found, wanted, "generation_config")


@call(GROUP, phase=Phase.INFER, requires=("model_t5",))
def seq2seq_answers_without_labels(ctx: Context) -> Iterator[Check]:
    """Without labels, Seq2SeqTrainer.predict generates answers and no loss, behind the decoder's inputs if given.

    Without predict_with_generate, it returns logits.
    """
    network = stock_trainer.Reference(ctx, "t5").network
    rows = [question(number) for number in range(ROWS)]
    kinds: tuple[tuple[str, Collator, tuple[int, ...]], ...] = (
        ("from the start", without_labels, START),
        ("behind a prompt", with_prompts, PROMPT),
    )
    for title, collator, begun in kinds:
        found = trainer(ctx, collator, generation_max_length=LONGEST).predict(rows)
        wanted = [greedy(network, number, begun=begun) for number in range(ROWS)]
        yield from answers(found.predictions, wanted, title)
        yield equal(f"labels, {title}", str(found.label_ids), "None")
        yield equal(f"losses, {title}", sum("loss" in name for name in found.metrics), 0)
    found = trainer(ctx, predict_with_generate=False).predict(rows)
    parts = found.predictions[0] if isinstance(found.predictions, tuple) else found.predictions
    width = max(len(row["labels"]) for row in rows)
    yield equal("shape of logits", str(tuple(parts.shape)), str((ROWS, width, tiny.VOCABULARY)))
