"""The tiny random model and its data: the same on every rank, in every version and dtype.

Every value is derived from its name and is a multiple of 2**-10 with at most eight significant bits, so float32,
bfloat16 and float16 all hold it exactly: two runs that differ only in dtype start from the same numbers.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

from cases.space.options import GLOBAL_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN, LAYERS, VOCABULARY = 64, 2, 128
RANK, SCALING = 8, 2.0  # LoRA's r, and lora_alpha / r
TARGETS = ("q_proj", "v_proj", "up_proj", "down_proj")
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")  # in every layer; quantised
SKIPPED = "v_proj"  # not quantised with skip_modules; a target, so that adapters sit on both kinds of layer
STEPS, LENGTH = 3, 16
SCHEDULE = (1.0, 0.5, 0.25)  # the factor of the learning rate in each step
NEW_TOKENS, END = 6, 2  # the number of generated tokens; the end token
PADDING, START = 0, 1  # the other special tokens; the data contains none of them


def values(name: str, shape: tuple[int, ...]) -> Any:
    """The start value of the parameter called ``name``: float32, shape ``shape``, exact in every dtype."""
    import torch

    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    normal = torch.randn(shape, generator=generator)
    is_scale = ("norm" in name or ".ln_" in name) and not name.endswith("bias")
    wanted = 1 + 0.1 * normal if is_scale else normal * (0.5 if "embed" in name else 0.125)
    grid = (wanted * 2**10).round().clamp(-(2**11), 2**11).to(torch.bfloat16).float()
    spacing = (2.0 ** (torch.frexp(grid).exponent - 8)).clamp_min(1)
    for _ in range(2):  # thirds and 128ths of a block's largest value lie midway between levels of FP4: either is right
        midway = (grid % 3 == 0) | (grid % 128 == 0)
        grid = torch.where(midway, grid - spacing * grid.sign(), grid)
    return grid / 2**10


def batch(step: int, vocabulary: int = VOCABULARY, length: int = LENGTH) -> Any:
    """Token ids of one global step: int64, shape (GLOBAL_BATCH, length), never the padding token 0."""
    import torch

    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randint(3, vocabulary, (GLOBAL_BATCH, length), generator=generator)


def prompt(vocabulary: int = VOCABULARY) -> Any:
    """The prompt of a generation: the first half of each row of batch 0."""
    return batch(0, vocabulary)[:, : LENGTH // 2]


def shard(step: int, rank: int, world_size: int, vocabulary: int = VOCABULARY) -> Any:
    """The rows of the global batch that this rank trains on; no two ranks see the same row."""
    per_rank = GLOBAL_BATCH // world_size
    return batch(step, vocabulary)[rank * per_rank : (rank + 1) * per_rank]


def rows() -> list[Any]:
    """The rows of all steps, in order: what a front end's data loader makes the global batches from."""
    return [row for step in range(STEPS) for row in batch(step)]


def rows_at_once(world_size: int, accumulation: int) -> int:
    """The batch size to ask of a front end, so that all its batches of a step together are the global batch."""
    return GLOBAL_BATCH // (world_size * accumulation)


def fill(model: Any) -> None:
    """Give every parameter of any model the values that belong to its name."""
    import torch

    with torch.no_grad():
        for name, parameter in named(model):
            parameter.copy_(values(name, tuple(parameter.shape)))


WRAPPERS = re.compile(
    r"(^|(?<=\.))(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod|module|base_layer|modules_to_save|default)(\.|$)"
)

# PEFT's prefix of a name; for prompts, which have no tuner around the model, only its first word.
PEFT = re.compile(r"^base_model\.(model\.(?!layers\.|embed_tokens\.|norm\.))?")
SAVED_AS = {"prompt_embeddings": "prompt_encoder.embedding.weight"}  # in a prompt adapter's file
ADAPTERS = ("lora_", "hada_", "lokr_", "ia3_", "vera_", "prompt_encoder", "ranknum")


def canonical(name: str) -> str:
    """A parameter's name without what wrappers add, e.g. ``model.layers.0.self_attn.q_proj.lora_A.weight``."""
    bare = PEFT.sub("", WRAPPERS.sub("", name)).rstrip(".")
    return SAVED_AS.get(bare, re.sub(r"(lora_magnitude_vector)\.weight$", r"\1", bare))


def is_adapter(name: str) -> bool:
    return any(mark in name for mark in ADAPTERS)


def named(model: Any) -> Iterator[tuple[str, Any]]:
    """The parameters of a model, by canonical name."""
    for name, parameter in model.named_parameters():
        yield canonical(name), parameter
