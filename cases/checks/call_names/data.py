"""The names of the checks of ``cases.behaviour.data``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.data.chat_templates": (
        "text",
        "text with the prompt",
        "ids",
        "mask of the assistant",
        "loss off",
        "ids of the new tokens",
        "rows of embeddings",
        "rows of the head",
        "end token",
        "end token of the config",
        "labels",
    ),
    "cases.behaviour.data.collator_arguments": (
        "tokens that differ with the same seed",
        "batches that are the same with another seed",
        "the second batch is masked as the first",
        "labels",
        "labels by default",
        "scores",
        "named tokens that are learned",
        "share of learned words off",
        "words changed that are not learned, {masks}",
        "share of {name} off, {masks} and {others}",
    ),
    "cases.behaviour.data.collators": (
        "special tokens learned",
        "labels other than the word",
        "words changed that are not learned",
        "a mask, which would hide the documents",
        "ids",
        "labels",
        "mask",
        "positions",
        "share of learned words, off",
        "share of masks, off",
        "share of unchanged words, off",
    ),
    "cases.behaviour.data.data_order": (
        "rows of each batch",
        "rows with drop_last",
        "weight off",
        "rows of rank 0",
        "rows of rank 1",
    ),
    "cases.behaviour.data.flattening": (
        "names",
        "logged loss off",
        "weights off",
        "bounds of {side}",
        "dtype of the bounds of {side}",
        "longest of {side}",
    ),
    "cases.behaviour.data.packing": (
        "lengths of the rows",
        "tokens",
        "documents in one piece",
        "documents by seq_lengths",
        "documents by positions",
        "positions that count up",
        "first labels learned",
        "other labels",
        "a mask, which would hide the documents",
        "numbers of documents",
        "loss off",
        "rows of the batch",
        "rows",
        "labels",
    ),
    "cases.behaviour.data.prepared_loaders": (
        "order of epoch {epoch}",
        "order of epoch 1 again",
        "epochs of the same order",
        "epochs that lack a row",
        "objects that are kept",
        "rows",
        "learning rate",
        "share of {count} rows",
        "steps",
        "steps after resuming",
    ),
    "cases.behaviour.data.worker_randomness": ("numbers of {source} drawn twice",),
}
