"""Heads of classifiers in training and by their arguments: dropout, kinds of labels, caches in outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.behaviour.models.inputs_of_classes import PREFIXES, class_of
from cases.behaviour.models.losses import known
from cases.model import tiny
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Heads"
SAME = 5e-6  # relative: a loss of a few scores, in float32
OTHERS = ("resid_pdrop", "embd_pdrop", "attn_pdrop")  # the rates of GPT-2's other dropouts
SURE = 6.0  # standard errors


def classifier(ctx: Context, model: str, kind: str, **changes: Any) -> Any:
    """A new classifier, whose weights are drawn, of the tiny configuration."""
    import torch
    import transformers

    name = " ".join(str(each) for each in (kind, *changes.values()))
    config = transformers.AutoConfig.from_pretrained(Variant(model, changes).written(ctx, name))
    torch.manual_seed(0)
    made = getattr(transformers, f"AutoModelFor{kind}").from_config(config)
    return made.to(ctx.place.device)


@call(GROUP, phase=Phase.FORWARD)
def token_head_dropout(ctx: Context) -> Iterator[Check]:
    """A classifier of tokens drops its inputs in training by classifier_dropout, 0.1 by default, and scales the rest.

    Its weight is the identity here, so that its scores are its inputs; in evaluation, it drops nothing.
    """
    import torch

    for model in (each for each in known(decoders=False) if each not in ("gemma", "mixtral")):
        for share in (None, 0.4):
            changes: dict[str, Any] = {"num_labels": tiny.HIDDEN, **dict.fromkeys(OTHERS, 0.0)}
            made = classifier(ctx, model, "TokenClassification", classifier_dropout=share, **changes)
            head = made.score if hasattr(made, "score") else made.classifier
            with torch.no_grad():
                head.weight.copy_(torch.eye(tiny.HIDDEN))
                head.bias.zero_()
                ids = tiny.batch(0).to(made.device)
                whole = made.eval()(input_ids=ids).logits
                found = made.train()(input_ids=ids).logits
            wanted = 0.1 if share is None else share
            dropped = found == 0
            error = (wanted * (1 - wanted) / found.numel()) ** 0.5
            title = f"{model}, classifier_dropout={share}"
            off = abs(float(dropped.float().mean()) - wanted) / error
            yield at_most(f"share dropped off, in standard errors, {title}", off, SURE)
            kept = (found - whole / (1 - wanted))[~dropped].abs().max() / whole.abs().max()
            yield at_most(f"kept inputs off, {title}", float(kept), SAME)
            yield equal(f"inputs dropped in evaluation, {title}", int((whole == 0).sum()), 0)


@call(GROUP, phase=Phase.FORWARD)
def sequence_head_labels(ctx: Context) -> Iterator[Check]:
    """A classifier chooses its loss by num_labels and the type of its labels, if problem_type is not given.

    One label is a regression; several with whole numbers are classes; with real numbers, a mean over labels that may
    all be true. https://huggingface.co/docs/transformers/main_classes/configuration
    """
    import torch
    from torch.nn import functional

    for model in known():
        if model in ("gemma", "mixtral"):
            continue
        for number in (1, 2, 3):
            made = classifier(ctx, model, "SequenceClassification", num_labels=number).eval()
            ids = tiny.batch(0).to(made.device)
            ids[:, -1] = tiny.END
            classes = torch.tensor([0, 1, 0, number - 1])
            real = tiny.values("labels", (4, number)).abs().clamp(0, 1)
            kinds: dict[str, Any] = {"real": real[:, 0] if number == 1 else real}
            kinds |= {"long": classes} if number > 1 else {}
            for kind, labels in kinds.items():
                made.config.problem_type = None
                with torch.no_grad():
                    found = made(input_ids=ids, labels=labels.to(made.device))
                if number == 1:
                    wanted = functional.mse_loss(found.logits[:, 0].cpu(), labels)
                elif kind == "real":
                    wanted = functional.binary_cross_entropy_with_logits(found.logits.cpu(), labels)
                else:
                    wanted = functional.cross_entropy(found.logits.cpu(), labels)
                off = abs(float(found.loss / wanted) - 1)
                yield at_most(f"loss off, {model}, {number} labels, {kind}", off, SAME)


@call(GROUP, phase=Phase.FORWARD)
def answers_of_single_rows(ctx: Context) -> Iterator[Check]:
    """The loss of an answer is the mean of those of its first and last token, also of a batch of one row.

    Positions are numbers, or a column of them: https://huggingface.co/docs/transformers/model_doc/gpt2
    """
    import torch
    from torch.nn import functional

    for model, prefix in PREFIXES.items():
        if class_of(prefix, "ForQuestionAnswering") is None:
            continue
        made = classifier(ctx, model, "QuestionAnswering").eval()
        for count in (1, 3):
            ids = tiny.batch(0)[:count].to(made.device)
            begins, ends = (torch.tensor(places[:count]) for places in ([1, 4, 0], [3, 5, 2]))
            for title, shape in (("numbers", (count,)), ("columns", (count, 1))):
                given = {"start_positions": begins.reshape(shape), "end_positions": ends.reshape(shape)}
                with torch.no_grad():
                    found = made(input_ids=ids, **{name: each.to(made.device) for name, each in given.items()})
                losses = (
                    functional.cross_entropy(found.start_logits.cpu(), begins),
                    functional.cross_entropy(found.end_logits.cpu(), ends),
                )
                off = abs(float(found.loss) * 2 / float(sum(losses)) - 1)
                yield at_most(f"loss off, {model}, {count} rows, {title}", off, SAME)


@call(GROUP, phase=Phase.FORWARD)
def classifier_caches(ctx: Context) -> Iterator[Check]:
    """use_cache of a call has precedence over that of the configuration: a classifier returns a cache, or none.

    With return_dict=False, it returns a tuple of the same parts.
    """
    import torch

    for model in (each for each in known(decoders=False) if each not in ("gemma", "mixtral")):
        made = classifier(ctx, model, "SequenceClassification", num_labels=3).eval()
        ids = tiny.batch(0).to(made.device)
        for stated in (True, False):
            made.config.use_cache = stated
            for given in (None, True, False):
                more = {} if given is None else {"use_cache": given}
                wanted = stated if given is None else given
                with torch.no_grad():
                    found = made(input_ids=ids, **more)
                    parts = made(input_ids=ids, return_dict=False, **more)
                title = f"{model}, config {stated}, call {given}"
                yield equal(f"returns a cache, {title}", found.past_key_values is not None, wanted)
                yield equal(f"parts of a tuple, {title}", len(parts), 1 + wanted)
                yield equal(f"scores of the tuple that differ, {title}", int((parts[0] != found.logits).sum()), 0)


@call(GROUP, phase=Phase.BACKWARD)
def padding_row_of_embeddings(ctx: Context) -> Iterator[Check]:
    """Embeddings that are resized keep the row of the padding token as one without gradients, if it still exists.

    Also as the last row, and where the padding token occurs in a text.
    """
    for padding in (0, 50):
        for size in (padding + 1, padding + 2, 90, 150):
            folder = Variant("llama", {"pad_token_id": padding}).written(ctx, f"padding {padding} {size}")
            model = building.loaded(ctx, folder)
            model.resize_token_embeddings(size)
            embeddings = model.get_input_embeddings()
            title = f"padding {padding}, {size} rows"
            yield equal(f"padding_idx, {title}", str(embeddings.padding_idx), str(padding))
            ids = tiny.batch(0).clamp_max(size - 1).to(model.device)
            ids[:, 3] = padding
            model(input_ids=ids).logits.float().logsumexp(-1).mean().backward()
            row = embeddings.weight.grad[padding].abs().sum()
            yield equal(f"gradient of the padding row is zero, {title}", float(row), 0.0)
