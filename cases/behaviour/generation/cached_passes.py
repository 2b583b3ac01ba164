"""Forward passes that continue from past_key_values, in parts of several tokens and of one, by the reference.

The reference computes whole rows at once. Some rows are padded on the left, so that one-token queries need a mask, and
the first part of some holds nothing but padding, as when a prompt is processed in parts.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import GRANITE, Variant
from cases.model import architectures, tiny
from cases.reference import models, tolerance
from cases.reference.network import Batch
from cases.space.verdict import Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.reference.network import Network
    from cases.space.verdict import Check

GROUP = "Generation"
BOTH = ("eager", "sdpa")
PARTS = {"one by one": (9, *([1] * 7)), "in parts": (5, 6, 1, 4)}  # lengths, in all tiny.LENGTH


@dataclass(frozen=True)
class Text:
    """Token ids (rows, length), and a mask of the real ones, bool, if a user passes one."""

    ids: Any
    real: Any = None

    @property
    def positions(self) -> Any:
        """The positions of real tokens, counted from the first one of each row."""
        import torch

        real = torch.ones_like(self.ids) if self.real is None else self.real.long()
        return (real.cumsum(-1) - 1).clamp_min(0)

    def logits(self, network: Network, positions: Any = None) -> Any:
        """Those of the reference, which computes whole rows."""
        return models.logits(network, Batch(ids=self.ids, real=self.real, positions=positions)).detach()


def texts() -> dict[str, Text]:
    """Rows of different lengths, and rows of one length with a mask and without."""
    padded, ids = building.rows("padded_left"), tiny.batch(0)
    return {"padded": Text(padded.ids, padded.real), "masked": Text(ids, ids > 0), "plain": Text(ids)}


def fed(model: Any, text: Text, parts: Sequence[int], positions: Any = None, cache: Any = None) -> Any:
    """The logits of rows that a model gets in parts: (rows, length, vocabulary), on the CPU."""
    import torch

    found, begin = [], 0
    for size in parts:
        here = slice(begin, begin + size)
        given = {"input_ids": text.ids[:, here]}
        if text.real is not None:
            given["attention_mask"] = text.real[:, : here.stop].long()
        if positions is not None:
            given["position_ids"] = positions[:, here]
        on_device = {name: tensor.to(model.device) for name, tensor in given.items()}
        with torch.no_grad():
            output = model(**on_device, past_key_values=cache, use_cache=True)
        cache, begin = output.past_key_values, here.stop
        found.append(output.logits.cpu())
    return torch.cat(found, dim=1)


def compared(name: str, found: Any, expected: Any, text: Text) -> Check:
    """Compare the logits of real tokens."""
    real = slice(None) if text.real is None else text.real
    return at_most(f"logits off, {name}", tolerance.relative(found[real], expected[real]), building.bound("logits"))


def cached(ctx: Context, model: str, implementations: Sequence[str] = BOTH, **changes: Any) -> Iterator[Check]:
    """Feed rows in parts, with each implementation, with positions and without."""
    folder = Variant(model, changes).written(ctx, "cached")
    network = building.network(folder)
    for implementation in implementations:
        loaded = building.loaded(ctx, folder, attn_implementation=implementation)
        for kind, text in texts().items():
            for given, positions in (("positions", text.positions), ("no positions", None)):
                expected = text.logits(network, positions)
                for name, parts in PARTS.items():
                    found = fed(loaded, text, parts, positions)
                    yield compared(f"{implementation}, {kind}, {given}, {name}", found, expected, text)


def static(ctx: Context, model: str, implementations: Sequence[str] = BOTH) -> Iterator[Check]:
    """As above with a static cache that is longer than the rows, used again after its reset."""
    from transformers import StaticCache

    folder = Variant(model).written(ctx, "static")
    network = building.network(folder)
    for implementation in implementations:
        loaded = building.loaded(ctx, folder, attn_implementation=implementation)
        cache = StaticCache(config=loaded.config, max_cache_len=tiny.LENGTH + 4)
        for kind, text in texts().items():
            expected = text.logits(network, text.positions)
            for name, parts in {**PARTS, "whole": (tiny.LENGTH,)}.items():
                found = fed(loaded, text, parts, text.positions, cache)
                yield compared(f"{implementation}, {kind}, static, {name}", found, expected, text)
                cache.reset()


@call(GROUP, phase=Phase.INFER)
def cached_llama(ctx: Context) -> Iterator[Check]:
    """Llama continues padded rows from its cache, in parts and one by one, as it computes them whole."""
    yield from cached(ctx, "llama")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen",))
def cached_qwen2(ctx: Context) -> Iterator[Check]:
    """Qwen 2 continues padded rows from its cache, in parts and one by one, as it computes them whole."""
    yield from cached(ctx, "qwen")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen3",))
def cached_qwen3(ctx: Context) -> Iterator[Check]:
    """Qwen 3 continues padded rows from its cache, in parts and one by one, as it computes them whole."""
    yield from cached(ctx, "qwen3")


@call(GROUP, phase=Phase.INFER, requires=("model_mistral", "sdpa_mistral"))
def cached_mistral(ctx: Context) -> Iterator[Check]:
    """Mistral continues padded rows that exceed its window from its cache as it computes them whole."""
    yield from cached(ctx, "mistral")


@call(GROUP, phase=Phase.INFER, requires=("model_mixtral",))
def cached_mixtral(ctx: Context) -> Iterator[Check]:
    """Mixtral continues padded rows from its cache, in parts and one by one, as it computes them whole."""
    yield from cached(ctx, "mixtral")


@call(GROUP, phase=Phase.INFER, requires=("model_gemma", "layered_caches"))
def cached_gemma2(ctx: Context) -> Iterator[Check]:
    """Gemma 2 continues padded rows from its cache, with and without windows, as it computes them whole."""
    yield from cached(ctx, "gemma", ("eager",))


@call(GROUP, phase=Phase.INFER, requires=("granite",))
def cached_granite(ctx: Context) -> Iterator[Check]:
    """Granite continues padded rows from its cache, with its four multipliers, as it computes them whole."""
    yield from cached(ctx, "llama", **GRANITE)


@call(GROUP, phase=Phase.INFER, requires=("sdpa_gpt2",))
def cached_gpt2(ctx: Context) -> Iterator[Check]:
    """GPT-2 continues padded rows from its cache; positions that are not given count on from the cached tokens."""
    yield from cached(ctx, "gpt2")


@call(GROUP, phase=Phase.INFER, requires=("layered_caches",))
def static_llama(ctx: Context) -> Iterator[Check]:
    """Llama computes padded rows with a static cache, also after its reset, as it computes them whole."""
    yield from static(ctx, "llama")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen3", "layered_caches"))
def static_qwen3(ctx: Context) -> Iterator[Check]:
    """Qwen 3 computes padded rows with a static cache, also after its reset, as it computes them whole."""
    yield from static(ctx, "qwen3")


@call(GROUP, phase=Phase.INFER, requires=("model_mistral", "layered_caches"))
def static_mistral(ctx: Context) -> Iterator[Check]:
    """Mistral computes rows that exceed the window with a static cache of its size as it computes them whole."""
    yield from static(ctx, "mistral")


@call(GROUP, phase=Phase.INFER, requires=("model_mixtral", "layered_caches"))
def static_mixtral(ctx: Context) -> Iterator[Check]:
    """Mixtral computes padded rows with a static cache, also after its reset, as it computes them whole."""
    yield from static(ctx, "mixtral")


@call(GROUP, phase=Phase.INFER, requires=("model_gemma", "layered_caches"))
def static_gemma2(ctx: Context) -> Iterator[Check]:
    """Gemma 2 computes padded rows with static caches, with and without windows, as it computes them whole."""
    yield from static(ctx, "gemma", ("eager",))


@call(GROUP, phase=Phase.INFER, requires=("layered_caches",))
def static_gpt2(ctx: Context) -> Iterator[Check]:
    """GPT-2 computes padded rows with a static cache, also after its reset, as it computes them whole."""
    yield from static(ctx, "gpt2")


def cached_decoder(ctx: Context, implementation: str) -> Iterator[Check]:
    """Feed the decoder of T5 in parts, for texts that are padded on either side or not at all."""
    folder = Variant("t5").written(ctx, "cached")
    network, loaded = building.network(folder), building.loaded(ctx, folder, attn_implementation=implementation)
    answers = architectures.shifted(tiny.batch(1))
    for kind in ("padded_left", "padded_right", "plain"):
        rows = building.rows(kind)
        expected = models.logits(network, Batch(ids=rows.ids, real=rows.real, decoder_ids=answers)).detach()
        for name, parts in PARTS.items():
            found = decoded(loaded, Text(rows.ids, rows.real), answers, parts)
            yield compared(f"{implementation}, {kind}, {name}", found, expected, Text(answers))


def decoded(model: Any, text: Text, answers: Any, parts: Sequence[int]) -> Any:
    """The logits of answers that the decoder gets in parts: (rows, length, vocabulary), on the CPU."""
    import torch

    mask = {} if text.real is None else {"attention_mask": text.real.long().to(model.device)}
    cache, found = None, []
    with torch.no_grad():
        encoded = model.get_encoder()(input_ids=text.ids.to(model.device), **mask)
        for part in answers.to(model.device).split(list(parts), dim=1):
            output = model(
                encoder_outputs=encoded, decoder_input_ids=part, past_key_values=cache, use_cache=True, **mask
            )
            cache = output.past_key_values
            found.append(output.logits.cpu())
    return torch.cat(found, dim=1)


@call(GROUP, phase=Phase.INFER)
def cached_t5_eager(ctx: Context) -> Iterator[Check]:
    """T5's decoder continues from its cache, with the relative positions of later tokens and an encoder's padding."""
    yield from cached_decoder(ctx, "eager")


@call(GROUP, phase=Phase.INFER, requires=("sdpa_t5",))
def cached_t5_sdpa(ctx: Context) -> Iterator[Check]:
    """As cached_t5_eager, with SDPA attention."""
    yield from cached_decoder(ctx, "sdpa")


@call(GROUP, phase=Phase.INFER)
def logits_to_keep(ctx: Context) -> Iterator[Check]:
    """logits_to_keep returns the logits of the last tokens, or of those listed, and no others.

    https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaForCausalLM.forward
    """
    import torch

    for model in ("llama", "qwen", "gemma", "mistral", "mixtral"):
        folder, text = Variant(model).written(ctx, "kept"), Text(tiny.batch(0))
        expected = text.logits(building.network(folder))
        loaded = building.loaded(ctx, folder, attn_implementation="eager")
        known = inspect.signature(type(loaded).forward).parameters
        name = next(each for each in ("logits_to_keep", "num_logits_to_keep") if each in known)
        listed = torch.tensor([3, 0, 7])
        for kept, places in ((1, slice(-1, None)), (5, slice(-5, None)), (0, slice(None)), (listed, listed)):
            if kept is listed and name != "logits_to_keep":
                continue  # num_logits_to_keep is a number
            with torch.no_grad():
                found = loaded(input_ids=text.ids.to(loaded.device), **{name: kept}).logits.cpu()
            yield compared(f"{model}, {kept if kept is not listed else 'listed'}", found, expected[:, places], text)
