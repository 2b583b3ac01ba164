"""Heads other than that of a language model: classification of texts and of tokens, spans, and resized embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.behaviour.models.losses import known
from cases.model import architectures, tiny
from cases.model.data import IGNORED, Rows
from cases.reference import models, tolerance
from cases.reference.network import Batch
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.reference.network import Network
    from cases.space.verdict import Check

GROUP = "Heads"
LABELS = 3
SAME = 5e-6  # relative: a loss of a few scores, in float32


def last_states(network: Network, rows: Rows) -> Any:
    """What the head of a language model would get: float64, (rows, length, hidden)."""
    models.logits(network, building.batch(network, rows))
    return building.recorded(network, "model.norm", "transformer.ln_f")


def classified(states: Any, weight: Any, rows: Rows, padding: int) -> Any:
    """The scores of each row's last token that is not the padding token."""
    import torch

    last = [int((row != padding).nonzero()[-1]) for row in rows.ids]
    return states[torch.arange(len(last)), last] @ weight.T


def texts(kind: str) -> Rows:
    """Rows padded on one side, rows with the padding token inside the text, or one row alone."""
    rows = building.rows("padded_right" if kind == "padding inside" else kind if kind != "one row" else "plain")
    if kind == "one row":
        return rows.part(0, 1)
    if kind != "padding inside":
        return rows
    ids = rows.ids.clone()
    ids[:, 2] = tiny.PADDING  # as if it were the end token of a first turn
    return Rows(ids, rows.labels, rows.real)


KINDS = ("padded_right", "padded_left", "one row", "padded_left", "padded_right")


def sequence_head(ctx: Context, model: str, kinds: Sequence[str] = KINDS) -> Iterator[Check]:
    """Compare the scores, the loss of each problem type and all gradients with the reference."""
    import torch

    stated = {"num_labels": LABELS, "id2label": {str(n): f"LABEL_{n}" for n in range(LABELS)}}
    problems = {
        "single_label_classification": (torch.tensor([0, 2, 1, 2]), cross_entropy),
        "regression": (tiny.values("targets", (4, LABELS)), lambda scores, wanted: (scores - wanted).square().mean()),
        "multi_label_classification": (torch.tensor([[0.0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]]), binary),
    }
    variant = Variant(model, stated, heads={"score.weight": (LABELS, tiny.HIDDEN)})
    for number, kind in enumerate(kinds):
        problem = list(problems)[number % len(problems)]
        targets, loss = problems[problem]
        name = f"{model}, {kind}, {problem}"
        folder, rows = variant.written(ctx, name.replace(",", "")), texts(kind)
        loaded = building.loaded(ctx, folder, "SequenceClassification", problem_type=problem)
        network = building.network(folder)
        targets = targets[: len(rows.ids)]
        scores = classified(last_states(network, rows), network.tensors["score.weight"], rows, tiny.PADDING)
        wanted = loss(scores, targets)
        wanted.backward()
        given = {**rows.arguments, "labels": targets}
        found = loaded.train()(**{each: tensor.to(loaded.device) for each, tensor in given.items()})
        found.loss.backward()
        yield at_most(
            f"scores off, {name}",
            tolerance.relative(found.logits.detach().cpu(), scores.detach()),
            building.bound("logits"),
        )
        yield at_most(f"loss off, {name}", abs(float(found.loss.detach()) / float(wanted) - 1), SAME)
        leave_out_head(network)
        if loaded.get_input_embeddings().padding_idx is not None:
            # As torch documents: the row of padding_idx gets no gradient, also where the token is part of the text.
            network.tensors["model.embed_tokens.weight"].grad[tiny.PADDING] = 0
        yield building.gradients(name, loaded, network)


def leave_out_head(network: Network) -> None:
    """Drop the head of the language model, which a classifier does not have."""
    network.tensors = {name: tensor for name, tensor in network.tensors.items() if "lm_head" not in name}


def cross_entropy(scores: Any, wanted: Any) -> Any:
    return -scores.log_softmax(-1).gather(-1, wanted[:, None]).mean()


def binary(scores: Any, wanted: Any) -> Any:
    """The binary cross entropy of each label."""
    chances = scores.sigmoid()
    return -(wanted * chances.log() + (1 - wanted) * (1 - chances).log()).mean()


@call(GROUP, phase=Phase.BACKWARD)
def sequence_head_llama(ctx: Context) -> Iterator[Check]:
    """A classifier on Llama scores the last token that is not padding, for each problem type and side of padding.

    https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaForSequenceClassification
    """
    yield from sequence_head(ctx, "llama")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen",))
def sequence_head_qwen2(ctx: Context) -> Iterator[Check]:
    """A classifier on Qwen 2 scores the last token that is not padding, for each problem type and side of padding."""
    yield from sequence_head(ctx, "qwen")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen3",))
def sequence_head_qwen3(ctx: Context) -> Iterator[Check]:
    """A classifier on Qwen 3 scores the last token that is not padding, for each problem type and side of padding."""
    yield from sequence_head(ctx, "qwen3")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mistral",))
def sequence_head_mistral(ctx: Context) -> Iterator[Check]:
    """A classifier on Mistral scores the last token that is not padding, for each problem type and side of padding."""
    yield from sequence_head(ctx, "mistral")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral",))
def sequence_head_mixtral(ctx: Context) -> Iterator[Check]:
    """A classifier on Mixtral scores the last token that is not padding, for each problem type and side of padding."""
    yield from sequence_head(ctx, "mixtral")


@call(GROUP, phase=Phase.BACKWARD)
def sequence_head_gpt2(ctx: Context) -> Iterator[Check]:
    """A classifier on GPT-2 scores the last token that is not padding, for each problem type and side of padding."""
    yield from sequence_head(ctx, "gpt2")


@call(GROUP, phase=Phase.BACKWARD)
def sequence_head_padding_inside(ctx: Context) -> Iterator[Check]:
    """A classifier scores the last token that is not padding, if the padding token also occurs inside the text.

    So does an end token that is the padding token, after each turn of a chat. transformers 4.47 takes the token before
    the first padding token.
    """
    for model in known(decoders=False):
        yield from sequence_head(ctx, model, ("padding inside",))


@call(GROUP, phase=Phase.INFER)
def sequence_head_without_padding(ctx: Context) -> Iterator[Check]:
    """Without a padding token, a classifier scores the last token of one row, and refuses several rows.

    https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaForSequenceClassification
    """
    import torch

    for model in ("llama", "gpt2"):
        stated = {"num_labels": LABELS, "pad_token_id": None}
        folder = Variant(model, stated, heads={"score.weight": (LABELS, tiny.HIDDEN)}).written(ctx, "no padding")
        loaded, network = building.loaded(ctx, folder, "SequenceClassification"), building.network(folder)
        rows = building.rows()
        expected = (last_states(network, rows)[:, -1] @ network.tensors["score.weight"].T).detach()
        with torch.no_grad():
            found = torch.cat([loaded(input_ids=row[None].to(loaded.device)).logits.cpu() for row in rows.ids])
        yield at_most(f"scores off, {model}", tolerance.relative(found, expected), building.bound("logits"))
        refused = ""
        try:
            loaded(input_ids=rows.ids.to(loaded.device))
        except (AssertionError, ValueError) as error:
            refused = str(error)
        yield equal(f"refuses several rows, {model}", "padding token" in refused, True)  # noqa: FBT003 - a value


def tokens_head(ctx: Context, model: str, name: str) -> Iterator[Check]:
    """Compare a score for each token, the loss over those that are learned, and all gradients with the reference."""
    head = {f"{name}.weight": (LABELS, tiny.HIDDEN), f"{name}.bias": (LABELS,)}
    stated = {"num_labels": LABELS, "classifier_dropout": 0.0, "hidden_dropout": 0.0}
    variant = Variant(model, stated, heads=head)
    for kind in ("padded_right", "padded_left"):
        folder, rows = variant.written(ctx, kind), building.rows(kind)
        loaded, network = building.loaded(ctx, folder, "TokenClassification"), building.network(folder)
        scores = last_states(network, rows) @ network.tensors[f"{name}.weight"].T + network.tensors[f"{name}.bias"]
        labels = (rows.ids % LABELS).masked_fill(~rows.real, IGNORED)
        learned = labels != IGNORED
        wanted = cross_entropy(scores[learned], labels[learned])
        wanted.backward()
        found = building.trained(loaded, Rows(rows.ids, labels, rows.real))
        yield at_most(
            f"scores off, {kind}",
            tolerance.relative(found.logits.detach().cpu()[learned], scores.detach()[learned]),
            building.bound("logits"),
        )
        yield at_most(f"loss off, {kind}", abs(float(found.loss.detach()) / float(wanted) - 1), building.bound("loss"))
        leave_out_head(network)
        yield building.gradients(kind, loaded, network)


@call(GROUP, phase=Phase.BACKWARD)
def tokens_head_llama(ctx: Context) -> Iterator[Check]:
    """A classifier of tokens on Llama scores each token, and learns the labels of real ones.

    https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaForTokenClassification
    """
    yield from tokens_head(ctx, "llama", "score")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral",))
def tokens_head_mixtral(ctx: Context) -> Iterator[Check]:
    """A classifier of tokens on Mixtral scores each token, and learns the labels of real ones."""
    yield from tokens_head(ctx, "mixtral", "score")


@call(GROUP, phase=Phase.BACKWARD)
def tokens_head_gpt2(ctx: Context) -> Iterator[Check]:
    """A classifier of tokens on GPT-2 scores each token, and learns the labels of real ones."""
    yield from tokens_head(ctx, "gpt2", "classifier")


def with_head(ctx: Context, kind: str, head: Mapping[str, tuple[int, ...]], name: str) -> tuple[Network, Any]:
    """The reference network of a T5, and the library's model with this head."""
    plain, saved = (Variant("t5", {"num_labels": LABELS}, heads=head, prefix=each) for each in ("", "transformer."))
    network = building.network(plain.written(ctx, f"{name} reference"))
    return network, building.loaded(ctx, saved.written(ctx, name), kind)


@call(GROUP, phase=Phase.FORWARD)
def tokens_head_t5(ctx: Context) -> Iterator[Check]:
    """A classifier of tokens on T5 scores each token of the encoder, with padding on either side.

    https://huggingface.co/docs/transformers/model_doc/t5#transformers.T5ForTokenClassification
    """
    import torch

    head = {"classifier.weight": (LABELS, tiny.HIDDEN), "classifier.bias": (LABELS,)}
    for kind in ("padded_right", "padded_left"):
        network, loaded = with_head(ctx, "TokenClassification", head, kind)
        rows = building.rows(kind)
        models.logits(network, building.batch(network, rows))
        states = building.recorded(network, "encoder.final_layer_norm")
        expected = states @ network.tensors["classifier.weight"].T + network.tensors["classifier.bias"]
        given = {"input_ids": rows.ids, "attention_mask": rows.real.long()}
        with torch.no_grad():
            found = loaded(**{name: each.to(loaded.device) for name, each in given.items()}).logits.cpu()
        off = tolerance.relative(found[rows.real], expected.detach()[rows.real])
        yield at_most(f"scores off, {kind}", off, building.bound("logits"))


@call(GROUP, phase=Phase.FORWARD)
def sequence_head_t5(ctx: Context) -> Iterator[Check]:
    """A classifier on T5 scores the decoder's state at the last end token of the text, which the decoder reads too.

    https://huggingface.co/docs/transformers/model_doc/t5#transformers.T5ForSequenceClassification; its head is BART's,
    https://arxiv.org/abs/1910.13461, section 3.1: a matrix, tanh, and a matrix
    """
    import torch

    sizes = {"dense": (tiny.HIDDEN, tiny.HIDDEN), "out_proj": (LABELS, tiny.HIDDEN)}
    head: dict[str, tuple[int, ...]] = {f"classification_head.{part}.weight": size for part, size in sizes.items()}
    head.update({f"classification_head.{part}.bias": size[:1] for part, size in sizes.items()})
    network, loaded = with_head(ctx, "SequenceClassification", head, "sequence")
    ids, places = tiny.batch(0), torch.tensor([15, 9, 12, 4])
    ids[:, 2] = tiny.END
    ids[torch.arange(len(ids)), places] = tiny.END
    real = torch.arange(ids.shape[1]) <= places[:, None]
    ids = ids.masked_fill(~real, tiny.PADDING)
    models.logits(network, Batch(ids=ids, real=real, decoder_ids=architectures.shifted(ids)))
    states = building.recorded(network, "decoder.final_layer_norm")[torch.arange(len(ids)), places]
    for part in sizes:
        name = f"classification_head.{part}"
        states = states @ network.tensors[f"{name}.weight"].T + network.tensors[f"{name}.bias"]
        states = states.tanh() if part == "dense" else states
    targets = torch.tensor([0, 2, 1, 2])
    given = {"input_ids": ids, "attention_mask": real.long(), "labels": targets}
    with torch.no_grad():
        found = loaded(**{name: each.to(loaded.device) for name, each in given.items()})
    yield at_most("scores off", tolerance.relative(found.logits.cpu(), states.detach()), building.bound("logits"))
    yield at_most("loss off", abs(float(found.loss) / float(cross_entropy(states, targets)) - 1), SAME)
