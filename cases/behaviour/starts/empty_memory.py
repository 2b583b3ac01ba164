"""Adapters and new models write every number that they read: nothing is left of the memory that torch handed out.

https://docs.pytorch.org/docs/stable/deterministic.html#torch.utils.deterministic.fill_uninitialized_memory: with
deterministic algorithms, torch fills new memory with NaN, and with the largest number of integers.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods.layers import NAMES
from cases.behaviour.adapters.methods.life_cycle import every
from cases.behaviour.models.building import Variant
from cases.behaviour.starts import adapted_layers
from cases.model import disk, tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method

GROUP = "Start values"
ARCHITECTURES = ("llama", "gpt2", "mixtral", "gemma", "t5")


@contextlib.contextmanager
def filled_memory() -> Iterator[None]:
    """Fill new memory, and restore how torch was set."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)  # noqa: FBT003 - torch's argument
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)  # noqa: FBT003 - torch's argument


def unwritten(tensors: Mapping[str, Any]) -> str:
    """The names of tensors with a number that nobody wrote."""
    import torch

    def is_unwritten(each: Any) -> bool:
        if each.dtype.is_floating_point or each.dtype.is_complex:
            return not bool(each.isfinite().all())
        return each.dtype != torch.bool and bool((each == torch.iinfo(each.dtype).max).any())

    return " ".join(sorted(name for name, each in tensors.items() if is_unwritten(each))) or "none"


def held(model: Any) -> dict[str, Any]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@call(GROUP, phase=Phase.ADAPT, requires=("filled_memory",))
def adapters_write_their_memory(_ctx: Context) -> Iterator[Check]:
    """Every adapter of every method starts with numbers that it wrote, in parameters and buffers, as do its outputs."""
    import peft
    import torch

    def story(key: str, method: Method) -> Iterator[Check]:
        plain = adapted_layers.base()
        with filled_memory():
            torch.manual_seed(0)
            model = peft.get_peft_model(plain, method.made("first"), adapter_name="first")
            model.add_adapter("second", method.made("second"))
            for name in NAMES:
                model.base_model.set_adapter(name)
                with torch.no_grad():
                    found = {"outputs": model(torch.arange(adapted_layers.WORDS))}
                yield equal(f"outputs of the {name} without a number, {key}", unwritten(found), "none")
        yield equal(f"tensors without a number, {key}", unwritten(held(model)), "none")

    yield from every(story)


@call(GROUP, phase=Phase.LOAD, requires=("filled_memory",))
def new_models_write_their_memory(ctx: Context) -> Iterator[Check]:
    """A new model, one that is loaded, and one with a new head have numbers that somebody wrote everywhere."""
    import torch
    import transformers

    for name in ARCHITECTURES:
        folder = Variant(name).written(ctx, "memory")
        is_decoder = disk.config(folder)["is_encoder_decoder"]
        auto = transformers.AutoModelForSeq2SeqLM if is_decoder else transformers.AutoModelForCausalLM
        with filled_memory():
            torch.manual_seed(0)
            config = transformers.AutoConfig.from_pretrained(folder)
            made = {
                "new": auto.from_config(config),
                "loaded": auto.from_pretrained(folder),
                "new head": transformers.AutoModelForSequenceClassification.from_pretrained(folder, pad_token_id=0),
            }
            for title, model in made.items():
                yield equal(f"tensors without a number, {name}, {title}", unwritten(held(model)), "none")
                decoded = {"decoder_input_ids": tiny.batch(1)} if is_decoder and title != "new head" else {}
                if is_decoder and title == "new head":
                    continue  # reads the last end token of each text
                with torch.no_grad():
                    found = model.eval()(input_ids=tiny.batch(0), **decoded).logits
                yield equal(f"logits without a number, {name}, {title}", unwritten({"logits": found}), "none")
