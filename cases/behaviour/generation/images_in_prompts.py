"""Generation from prompts with an image, whose tokens see each other, by the caches that generate offers.

https://huggingface.co/docs/transformers/model_doc/gemma3: tokens of an image attend to each other in both directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

WIDTH, IMAGE, PATCH, PLACES = 16, 16, 4, 4  # an image of 16 patches is pooled to 4 tokens
TOKEN, NEW = 60, 5  # the token that stands for a part of an image, and new tokens


def model() -> Any:
    """A Gemma 3 of two layers that reads images, with weights large enough that its tokens depend on the image."""
    import torch
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    sizes = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**sizes, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 64, "sliding_window": 32}
    config = Gemma3Config(
        text_config={**text, "max_position_embeddings": 64, "query_pre_attn_scalar": 8},
        vision_config={**sizes, "image_size": IMAGE, "patch_size": PATCH},
        mm_tokens_per_image=PLACES,
        image_token_index=TOKEN,
        boi_token_index=TOKEN - 1,
        eoi_token_index=TOKEN + 1,
        initializer_range=0.4,
    )
    torch.manual_seed(0)
    return Gemma3ForConditionalGeneration(config).eval()


def prompt() -> dict[str, Any]:
    """Two rows of text around an image."""
    import torch

    rows = [
        [2, 7, 9, TOKEN - 1, *[TOKEN] * PLACES, TOKEN + 1, 11],
        [2, 8, TOKEN - 1, *[TOKEN] * PLACES, TOKEN + 1, 5, 6],
    ]
    ids = torch.tensor(rows)
    images = 4 * tiny.values("images", (len(rows), 3, IMAGE, IMAGE))
    kinds = (ids == TOKEN).long()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": kinds, "pixel_values": images}


@call("Generation", phase=Phase.INFER, requires=("gemma3",))
def generates_from_images(_ctx: Context) -> Iterator[Check]:
    """The logits of each step are those of a pass over the whole text and its images, with each kind of cache.

    A causal pass, in which a part of an image does not see later ones, has others.
    """
    import torch

    made, given = model(), prompt()
    usual = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    usual |= {"return_dict_in_generate": True, "output_logits": True}
    for title, more in (
        ("dynamic", {}),
        ("static", {"cache_implementation": "static"}),
        ("none", {"use_cache": False}),
    ):
        found = made.generate(**given, **usual, **more)
        ids = found.sequences[:, :-1]
        longer = torch.nn.functional.pad(given["token_type_ids"], (0, ids.shape[1] - given["input_ids"].shape[1]))
        whole = {"pixel_values": given["pixel_values"], "attention_mask": torch.ones_like(ids)}
        with torch.no_grad():
            wanted = made(input_ids=ids, token_type_ids=longer, **whole).logits[:, -NEW:]
            causal = made(input_ids=ids, token_type_ids=torch.zeros_like(longer), **whole).logits[:, -NEW:]
        logits = torch.stack(found.logits, dim=1)
        yield at_most(f"logits off, {title} cache", tolerance.relative(logits, wanted), building.bound("logits"))
        yield equal(f"tokens, {title} cache", str(found.sequences[:, -NEW:].tolist()), str(wanted.argmax(-1).tolist()))
        yield at_least(f"logits of a causal pass off, {title} cache", tolerance.relative(causal, wanted), 0.001)
