"""resize_token_embeddings: the values of old and of new rows, and the logits of old tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.behaviour.models.losses import known
from cases.model import architectures, tiny
from cases.reference import models, tolerance
from cases.reference.network import Batch
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Heads"
MORE, FEWER, MULTIPLE = 137, 100, 64
NEAR = 0.05  # of a new row to the mean of old ones, in units of their spread: drawn with a billionth of the covariance
DEVIATION = 0.5  # initializer_range, unlike any other value


def parts(model: Any) -> dict[str, Any]:
    """The matrices with a row per token."""
    both = {"embeddings": model.get_input_embeddings(), "head": model.get_output_embeddings()}
    return {name: part.weight.detach().cpu().clone() for name, part in both.items()}


def resized(ctx: Context, model: str, *, tied: bool) -> Iterator[Check]:
    folder = Variant(model, tied=tied).written(ctx, f"resized {tied}")
    name = f"{model}, {'tied' if tied else 'untied'}"
    network, ids = building.network(folder), tiny.batch(0, FEWER)
    decoder = architectures.shifted(ids) if network.config["is_encoder_decoder"] else None
    expected = models.logits(network, Batch(ids=ids, decoder_ids=decoder)).detach()
    loaded = building.loaded(ctx, folder, attn_implementation="eager")
    before = parts(loaded)
    padded = {"pad_to_multiple_of": MULTIPLE}
    for size, given, wanted in ((MORE, {}, MORE), (MORE, padded, 192), (256, padded, 256), (FEWER, {}, FEWER)):
        loaded.resize_token_embeddings(size, **given)
        kept = min(wanted, tiny.VOCABULARY)
        after = parts(loaded)
        sizes = {len(each) for each in after.values()}
        yield equal(f"rows, {name}, {wanted}", "+".join(map(str, sizes)), str(wanted))
        yield equal(f"vocab_size, {name}, {wanted}", loaded.config.vocab_size, wanted)
        changed = sum(int((after[part][:kept] != before[part][:kept]).sum()) for part in before)
        yield equal(f"numbers of old rows that differ, {name}, {wanted}", changed, 0)
        found = outputs(loaded, ids, decoder)
        yield equal(f"columns of logits, {name}, {wanted}", found.shape[-1], wanted)
        yield at_most(
            f"logits of old tokens off, {name}, {wanted}",
            tolerance.relative(found[..., :kept], expected[..., :kept]),
            building.bound("logits"),
        )
        shares = loaded.get_input_embeddings().weight.data_ptr() == loaded.get_output_embeddings().weight.data_ptr()
        yield equal(f"head shares the embeddings, {name}, {wanted}", shares, tied)


def outputs(model: Any, ids: Any, decoder: Any) -> Any:
    import torch

    given = {"input_ids": ids, **({} if decoder is None else {"decoder_input_ids": decoder})}
    with torch.no_grad():
        return model(**{name: tensor.to(model.device) for name, tensor in given.items()}).logits.cpu()


@call(GROUP, phase=Phase.INFER)
def resized_rows(ctx: Context) -> Iterator[Check]:
    """resize_token_embeddings keeps the rows of old tokens and their logits, grows, pads and shrinks both matrices.

    https://huggingface.co/docs/transformers/main_classes/model, resize_token_embeddings
    """
    for model in known(decoders=False):
        yield from resized(ctx, model, tied=False)


@call(GROUP, phase=Phase.INFER)
def resized_rows_t5(ctx: Context) -> Iterator[Check]:
    """As resized_rows, for T5 1.1, whose published checkpoints have a head of their own.

    transformers 5 sets tie_word_embeddings of every T5 configuration, so that the resize ties the head that was loaded.
    """
    yield from resized(ctx, "t5", tied=False)


@call(GROUP, phase=Phase.INFER)
def resized_rows_tied(ctx: Context) -> Iterator[Check]:
    """As resized_rows, for a head that shares the embeddings, which it still shares afterwards."""
    for model in known():
        yield from resized(ctx, model, tied=True)


@call(GROUP, phase=Phase.LOAD, requires=("mean_resizing",))
def resized_to_the_mean(ctx: Context) -> Iterator[Check]:
    """New rows start at the mean of the old ones, and with mean_resizing=False, by initializer_range around zero.

    The same documentation: "from a multivariate normal distribution that has old embeddings' mean and covariance",
    which the article that it cites scales down.
    """
    for model in known(decoders=False):
        folder = Variant(model, {"initializer_range": DEVIATION}).written(ctx, "mean")
        for mean in (True, False):
            loaded = building.loaded(ctx, folder)
            before = parts(loaded)
            loaded.resize_token_embeddings(2 * tiny.VOCABULARY, mean_resizing=mean)
            for part, rows in parts(loaded).items():
                new, old = rows[tiny.VOCABULARY :].double(), before[part].double()
                name = f"{part} of {model}"
                if mean:
                    far = float(((new - old.mean(0)).abs() / old.std(0)).max())
                    yield at_most(f"largest distance from the mean, {name}", far, NEAR)
                else:
                    off = abs(float(new.std()) / DEVIATION - 1)
                    yield at_most(f"deviation off, {name}", off, 5 / (2 * new.numel()) ** 0.5)
                    yield at_most(f"mean, {name}", abs(float(new.mean())), 5 * DEVIATION / new.numel() ** 0.5)
