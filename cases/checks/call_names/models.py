"""The names of the checks of ``cases.behaviour.models``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.models.building": (
        "gradients off, {name}",
        "logits off, {name}",
        "loss off, {name}",
    ),
    "cases.behaviour.models.heads": (
        "scores off",
        "loss off",
        "scores off, {name}",
        "loss off, {name}",
        "scores off, {model}",
        "refuses several rows, {model}",
        "scores off, {kind}",
        "loss off, {kind}",
    ),
    "cases.behaviour.models.heads_in_training": (
        "share dropped off, in standard errors, {title}",
        "kept inputs off, {title}",
        "inputs dropped in evaluation, {title}",
        "padding_idx, {title}",
        "gradient of the padding row is zero, {title}",
        "loss off, {model}, {number} labels, {kind}",
        "returns a cache, {title}",
        "parts of a tuple, {title}",
        "scores of the tuple that differ, {title}",
    ),
    "cases.behaviour.models.loaded_maps": (
        "tokens without a file",
        "samples without a file",
        "settings of the file",
        "tokens that generate adds",
        "settings after saving again",
        "logits off",
        "words of the tokeniser",
        "width of the configuration",
        "the adapter has an effect",
        "logits that differ, {title} on the disk",
        "weights away, {title}",
    ),
    "cases.behaviour.models.losses": (
        "auxiliary loss off, {kind}",
        "loss off, {kind}",
        "dtype of the loss, {name}",
        "loss off its logits, {name}",
        "loss off, {model}, {name}",
        "loss off, {model}, {kind}",
    ),
    "cases.behaviour.models.model_files": (
        "tensors that differ, {name}",
        "dtype of the model, {name}",
        "the default dtype is as before",
        "dtypes, weights in {stored}, configuration with {stated}",
        "shards, {model}",
        "the index names each tensor, {model}",
        "bytes of a shard with several tensors, {model}",
        "bytes of all, {model}",
        "tensors that differ on disk, {model}",
        "tensors that differ, {model}",
        "outputs off, {model}",
        "fields lost or changed, {model}",
        "fields that differ after loading, {model}",
        "missing",
        "unexpected",
        "mismatched",
        "tensors that differ",
        "shape of the head",
        "all numbers are finite",
        "a new norm is ones",
        "error",
    ),
    "cases.behaviour.models.new_weights": (
        "distance from its distribution, {model}",
        "tensors with other numbers, {model}",
        "matrices, {model}",
        "matrices that begin alike, {model}",
        "tables of relative positions",
    ),
    "cases.behaviour.models.resizing": (
        "rows, {name}, {wanted}",
        "vocab_size, {name}, {wanted}",
        "numbers of old rows that differ, {name}, {wanted}",
        "columns of logits, {name}, {wanted}",
        "logits of old tokens off, {name}, {wanted}",
        "head shares the embeddings, {name}, {wanted}",
        "largest distance from the mean, {name}",
        "deviation off, {name}",
        "mean, {name}",
    ),
    "cases.behaviour.models.rotary_lengths": (
        "what a stretch changes",
        "logits off, {title}",
    ),
    "cases.behaviour.models.rotary_settings": ("logits of late tokens off, {model}",),
}
