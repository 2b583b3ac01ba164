"""The tiny random model and its data, made on the spot, the same on every rank, in every version and in every dtype.

Every value is derived from its name and is a multiple of 2**-10 with at most eight significant bits, so float32,
bfloat16 and float16 all hold it exactly: two runs that differ only in dtype start from the same numbers.
"""

from __future__ import annotations

import fcntl
import re
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HIDDEN, LAYERS, VOCABULARY = 64, 2, 128
RANK, SCALING = 8, 2.0  # LoRA's r, and lora_alpha / r
TARGETS = ("q_proj", "v_proj", "up_proj", "down_proj")
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")  # in every layer; quantised
STEPS, GLOBAL_BATCH, LENGTH = 3, 4, 16


def config() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=2 * LENGTH,
        tie_word_embeddings=False,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )


def values(name: str, shape: tuple[int, ...]) -> Any:
    """The start value of the parameter called ``name``: float32, shape ``shape``, exact in every dtype."""
    import torch

    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    normal = torch.randn(shape, generator=generator)
    wanted = 1 + 0.1 * normal if "norm" in name else normal * (0.5 if "embed" in name else 0.125)
    grid = (wanted * 2**10).round().clamp(-(2**11), 2**11) / 2**10
    return grid.to(torch.bfloat16).to(torch.float32)


def batch(step: int) -> Any:
    """Token ids of one global step: int64, shape (GLOBAL_BATCH, LENGTH), never the padding token 0."""
    import torch

    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randint(3, VOCABULARY, (GLOBAL_BATCH, LENGTH), generator=generator)


def shard(step: int, rank: int, world_size: int) -> Any:
    """The rows of the global batch that this rank trains on; no two ranks see the same row."""
    per_rank = GLOBAL_BATCH // world_size
    return batch(step)[rank * per_rank : (rank + 1) * per_rank]


def checkpoint(cache: Path) -> Path:
    """A directory that ``from_pretrained`` loads; made by whoever comes first."""
    folder = cache / "llama"
    with (cache / "llama.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            from transformers import LlamaForCausalLM

            model = LlamaForCausalLM(config())
            fill(model)
            unfinished = cache / "llama.unfinished"
            model.save_pretrained(unfinished)
            unfinished.rename(folder)
    return folder


def fill(model: Any) -> None:
    """Give every parameter the values that belong to its name."""
    import torch

    with torch.no_grad():
        for name, parameter in named(model):
            parameter.copy_(values(name, tuple(parameter.shape)))


WRAPPERS = re.compile(
    r"(^|(?<=\.))(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod|module|base_layer|default)(\.|$)"
)


def canonical(name: str) -> str:
    """A parameter's name without what wrappers add, e.g. ``model.layers.0.self_attn.q_proj.lora_A.weight``."""
    bare = WRAPPERS.sub("", name).removeprefix("base_model.model.").rstrip(".")
    return re.sub(r"(lora_magnitude_vector)\.weight$", r"\1", bare)


def named(model: Any) -> Iterator[tuple[str, Any]]:
    """The parameters of a model, by canonical name."""
    for name, parameter in model.named_parameters():
        yield canonical(name), parameter
