"""DataCollatorWithFlattening by its documentation: separators, positions, bounds of documents, and training on it.

https://huggingface.co/docs/transformers/main_classes/data_collator#transformers.DataCollatorWithFlattening
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.data import seen
from cases.behaviour.trainers import optimisers, stock_trainer, token_means
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "Collators"
NEEDS = ("flattening",)
OUT, SEPARATOR = ingredients.IGNORED, 99
ROWS = ((5, 6, 7), (8, 9, 10, 11, 12), (13,))
IDS = [[5, 6, 7, 8, 9, 10, 11, 12, 13]]


def features(kind: Callable[[Any], Any] = list) -> list[dict[str, Any]]:
    """Token ids without labels, as most data sets for pretraining have them."""
    return [{"input_ids": kind(ids)} for ids in ROWS]


def flattened(given: list[dict[str, Any]] | None = None, later: dict[str, Any] | None = None, **more: Any) -> Any:
    """The batch; ``more`` goes to the collator, ``later`` to its call."""
    from transformers import DataCollatorWithFlattening

    return DataCollatorWithFlattening(**more)(given or features(), **(later or {}))


def labels(separator: int) -> list[list[int]]:
    """The ids, with the first of each document replaced: nothing before it predicts it."""
    return [[token for ids in ROWS for token in (separator, *ids[1:])]]


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def collator_flattens_without_labels(_ctx: Context) -> Iterator[Check]:
    """Without labels, DataCollatorWithFlattening learns the ids, but no document's first token."""
    found = flattened()
    yield seen.same_rows("ids", found["input_ids"], IDS)
    yield seen.same_rows("labels", found["labels"], labels(OUT))
    yield seen.same_rows("positions", found["position_ids"], [[0, 1, 2, 0, 1, 2, 3, 4, 0]])


@call(GROUP, phase=Phase.FORWARD, requires=("flattening_bounds",))
def collator_flattens_tensors(_ctx: Context) -> Iterator[Check]:
    """DataCollatorWithFlattening makes the same row of tensors, as data sets with set_format("torch") give them."""
    import torch

    found = flattened(features(torch.tensor))
    yield seen.same_rows("ids", found["input_ids"], IDS)
    yield seen.same_rows("labels", found["labels"], labels(OUT))
    learned = [{"input_ids": torch.tensor(ids), "labels": torch.tensor(ids) + 20} for ids in ROWS]
    wanted = [[token for ids in ROWS for token in (OUT, *(each + 20 for each in ids[1:]))]]
    yield seen.same_rows("given labels", flattened(learned)["labels"], wanted)


@call(GROUP, phase=Phase.FORWARD, requires=("flattening_separator",))
def collator_flattens_with_separator(_ctx: Context) -> Iterator[Check]:
    """separator_id, of DataCollatorWithFlattening or of its call, takes the place of each first label."""
    learned = [{"input_ids": list(ids), "labels": [token + 20 for token in ids]} for ids in ROWS]
    shifted = [[token for ids in ROWS for token in (SEPARATOR, *(each + 20 for each in ids[1:]))]]
    for name, more in (
        ("the collator", {"separator_id": SEPARATOR}),
        ("its call", {"separator_id": OUT, "later": {"separator_id": SEPARATOR}}),
    ):
        yield seen.same_rows(f"labels by {name}", flattened(**more)["labels"], labels(SEPARATOR))
        yield seen.same_rows(f"given labels by {name}", flattened(learned, **more)["labels"], shifted)


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def collator_flattens_without_positions(_ctx: Context) -> Iterator[Check]:
    """With return_position_ids=False, DataCollatorWithFlattening returns ids and labels alone."""
    found = flattened(return_position_ids=False)
    yield equal("names", " ".join(sorted(found)), "input_ids labels")
    yield seen.same_rows("labels", found["labels"], labels(OUT))


@call(GROUP, phase=Phase.FORWARD, requires=("flattening_bounds",))
def collator_flattens_with_bounds(_ctx: Context) -> Iterator[Check]:
    """return_flash_attn_kwargs adds where documents begin and the longest of them, return_seq_idx each one's number.

    FlashAttention needs int32 (https://github.com/Dao-AILab/flash-attention, ``flash_attn_varlen_func``).
    """
    found = flattened(return_flash_attn_kwargs=True, return_seq_idx=True)
    for side in ("q", "k"):
        bounds = found[f"cu_seq_lens_{side}"]
        yield equal(f"bounds of {side}", str(bounds.flatten().tolist()), "[0, 3, 8, 9]")
        yield equal(f"dtype of the bounds of {side}", str(bounds.dtype), "torch.int32")
        yield equal(f"longest of {side}", int(found[f"max_length_{side}"]), 5)
    yield seen.same_rows("documents", found["seq_idx"], [[0, 0, 0, 1, 1, 1, 1, 1, 2]])
    yield seen.same_rows("labels", found["labels"], labels(OUT))


@call(GROUP, phase=Phase.OPTIMIZER, requires=(*NEEDS, "packed_attention"))
def trainer_flattened(ctx: Context) -> Iterator[Check]:
    """The Trainer with DataCollatorWithFlattening trains as on each document alone, over all predicted tokens.

    The model makes no cache, with which documents would see each other.
    """
    from transformers import DataCollatorWithFlattening

    trainer = stock_trainer.trainer(ctx, 6, num_train_epochs=1)
    trainer.model.config.use_cache = False
    trainer.train_dataset = [{"input_ids": row["input_ids"].tolist()} for row in stock_trainer.rows(6)]
    trainer.data_collator = DataCollatorWithFlattening()
    token_means.in_order(trainer).train()
    reference = stock_trainer.Reference(ctx)
    steps = [[[0, 1]], [[2, 3]], [[4, 5]]]
    loss, update = token_means.mean_of_whole_rows(), optimisers.sgd(0.0)
    expected = stock_trainer.repeated(reference, steps, update, [0.1] * len(steps), loss)
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    yield at_most("logged loss off", stock_trainer.worst(logged, expected.losses), 1e-4)
    yield at_most("weights off", stock_trainer.weights_off(trainer.model, reference), stock_trainer.SAME)


@call(GROUP, phase=Phase.FORWARD, requires=("flattening_begin",))
def collator_flattens_from_a_position(_ctx: Context) -> Iterator[Check]:
    """DataCollatorWithFlattening numbers the tokens of each document from position_ids_start."""
    from transformers import DataCollatorWithFlattening

    lengths = [len(row["input_ids"]) for row in features()]
    for start in (0, 2, 5):
        found = DataCollatorWithFlattening(position_ids_start=start)(features())["position_ids"]
        wanted = [start + place for length in lengths for place in range(length)]
        yield seen.same_rows(f"positions from {start}", found, [wanted])
