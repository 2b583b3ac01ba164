"""What models return: fields and tuples, attentions and states by configuration, positions of classifiers, embeddings.

https://huggingface.co/docs/transformers/main_classes/output
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import inputs_of_classes
from cases.behaviour.models.building import Variant
from cases.behaviour.models.inputs_of_classes import HEADS, PREFIXES
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Models"
SAME = 1e-5  # of logits in float32, of the same tokens beside padding
POSITIONED = {**PREFIXES, "qwen3": "Qwen3"}
DECODERS = ("llama", "qwen", "mistral", "mixtral", "gpt2")
T5 = (
    "T5Model",
    "T5ForConditionalGeneration",
    "T5ForSequenceClassification",
    "T5EncoderModel",
    "T5ForTokenClassification",
)
# The fields that each class documents, without a loss, if hidden states and attentions are requested.
DECODER_FIELDS = ("past_key_values", "decoder_hidden_states", "decoder_attentions", "cross_attentions")
ENCODER_FIELDS = ("encoder_last_hidden_state", "encoder_hidden_states", "encoder_attentions")
FIELDS = {
    "T5Model": ("last_hidden_state", *DECODER_FIELDS, *ENCODER_FIELDS),
    "T5ForConditionalGeneration": ("logits", *DECODER_FIELDS, *ENCODER_FIELDS),
    "T5ForSequenceClassification": ("logits", *DECODER_FIELDS, *ENCODER_FIELDS),
    "T5EncoderModel": ("last_hidden_state", "hidden_states", "attentions"),
    "T5ForTokenClassification": ("logits", "hidden_states", "attentions"),
}


def known(model: str) -> bool:
    """Return whether this version has an architecture."""
    import transformers

    return hasattr(transformers, {"qwen": "Qwen2Model"}.get(model, f"{model.capitalize()}Model"))


def class_of(folder: Any, name: str, **more: Any) -> Any:
    import transformers

    return getattr(transformers, name).from_pretrained(folder, **more).eval()


def ids() -> Any:
    """Two rows of tokens, each with one end token in its last place."""
    import torch

    rows = torch.randint(3, tiny.VOCABULARY, (2, 6), generator=torch.Generator().manual_seed(5))
    rows[:, -1] = tiny.END
    return rows


def flat(value: Any) -> list[Any]:
    """The tensors of a nested output, in order; a cache is left out."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    return [each for part in value for each in flat(part)] if isinstance(value, (tuple, list)) else []


def apart(one: Any, other: Any) -> float:
    """The largest difference of two outputs; infinite if they are not shaped alike."""
    pairs = list(zip(flat(one), flat(other), strict=False))
    if len(flat(one)) != len(flat(other)) or any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max((float((a - b).abs().max()) for a, b in pairs), default=float("inf"))


@call(GROUP, phase=Phase.FORWARD)
def fields_of_t5(ctx: Context) -> Iterator[Check]:
    """Each class of T5 returns the fields that it documents, as an object and as a tuple, with a loss in front.

    use_cache=False leaves out the cache; hidden states and attentions are those of every layer.
    """
    import torch

    folder = Variant("t5").written(ctx, "policy")
    text, answer = ids(), ids()[:, :4]
    for name in T5:
        made = (
            class_of(folder, name, attn_implementation="eager")
            if name != "T5ForTokenClassification"
            else _tokens(folder)
        )
        layers = made.config.num_layers
        cached = {"use_cache": True} if "T5ForTokenClassification" != name != "T5EncoderModel" else {}
        given: dict[str, Any] = {"input_ids": text}
        if name in ("T5Model", "T5ForConditionalGeneration"):
            given["decoder_input_ids"] = answer
        every = {"output_hidden_states": True, "output_attentions": True}
        with torch.no_grad():
            found = made(**given, **cached, **every, return_dict=True)
            as_tuple = made(**given, **cached, **every, return_dict=False)
        wanted = FIELDS[name]
        if name == "T5ForSequenceClassification":
            wanted = tuple(field for field in wanted if field != "past_key_values")
            found_names = [field for field in found if field != "past_key_values"]
        else:
            found_names = [field for field in found if field == "past_key_values" or flat(found[field])]
        yield equal(f"fields, {name}", ", ".join(found_names), ", ".join(wanted))
        if name != "T5ForTokenClassification":
            yield at_most(f"tuple apart, {name}", apart(as_tuple, found.to_tuple()), 0.0)
        for field in wanted:
            if field.endswith("attentions"):
                yield equal(f"layers of {field}, {name}", len(found[field]), layers)
            if field.endswith("hidden_states"):
                yield equal(f"layers of {field}, {name}", len(found[field]), layers + 1)
        with torch.no_grad():
            plain = made(**given, **cached)
        few = [field for field in wanted if not field.endswith(("attentions", "hidden_states"))]
        yield equal(
            f"fields by default, {name}",
            ", ".join(field for field in plain if field in FIELDS[name] and field != "past_key_values"),
            ", ".join(field for field in few if field != "past_key_values"),
        )
        if "past_key_values" in wanted:
            yield equal(f"cache by default, {name}", plain.past_key_values is not None, bound=True)
            with torch.no_grad():
                without = made(**given, use_cache=False)
            yield equal(f"cache without use_cache, {name}", without.get("past_key_values") is None, bound=True)
            yield at_most(f"outputs without use_cache apart, {name}", apart(without[0], plain[0]), SAME)


@call(GROUP, phase=Phase.FORWARD)
def tuple_of_t5_token_classifier(ctx: Context) -> Iterator[Check]:
    """T5ForTokenClassification with return_dict=False returns scores, states and attentions, with a loss in front."""
    import torch

    made = _tokens(Variant("t5").written(ctx, "policy"))
    labels = ids() % 2
    for name, more in {"without labels": {}, "with labels": {"labels": labels}}.items():
        given = {"input_ids": ids(), "output_hidden_states": True, "output_attentions": True, **more}
        with torch.no_grad():
            found, wanted = made(**given, return_dict=False), made(**given, return_dict=True)
        yield equal(f"parts of the tuple, {name}", len(found), len(wanted))
        yield at_most(f"tuple apart, {name}", apart(found, wanted.to_tuple()), 0.0)


def _tokens(folder: Any) -> Any:
    return class_of(folder, "T5ForTokenClassification", num_labels=2, attn_implementation="eager")


@call(GROUP, phase=Phase.FORWARD)
def embeddings_that_are_set(ctx: Context) -> Iterator[Check]:
    """set_input_embeddings replaces the embeddings that a model reads, of both stacks of an encoder-decoder too.

    get_input_embeddings returns them, and tying keeps them.
    """
    import torch

    for name, model in (
        ("T5ForConditionalGeneration", "t5"),
        ("LlamaForCausalLM", "llama"),
        ("GPT2LMHeadModel", "gpt2"),
    ):
        made = class_of(Variant(model, tied=model == "t5").written(ctx, f"set {name}"), name)
        old = made.get_input_embeddings()
        new = torch.nn.Embedding(old.num_embeddings, old.embedding_dim)
        with torch.no_grad():
            new.weight.copy_(old.weight.flip(0))
        made.set_input_embeddings(new)
        yield equal(f"embeddings returned, {name}", made.get_input_embeddings() is new, bound=True)
        given = {"input_ids": ids(), **({"decoder_input_ids": ids()[:, :3]} if model == "t5" else {})}
        with torch.no_grad():
            found = made(**given).logits
        made.set_input_embeddings(old)
        last = old.num_embeddings - 1
        with torch.no_grad():
            flipped = {key: last - each for key, each in given.items()}
            wanted = made(**flipped).logits
        if model == "t5":
            read = [made.encoder.get_input_embeddings(), made.decoder.get_input_embeddings()]
            yield equal("embeddings of both stacks", all(each.weight is old.weight for each in read), bound=True)
            made.set_input_embeddings(new)
            made.tie_weights()
            read = [made.shared, made.encoder.get_input_embeddings(), made.decoder.get_input_embeddings()]
            yield equal("embeddings of both stacks, tied", all(each.weight is new.weight for each in read), bound=True)
        else:
            yield at_most(f"logits of new embeddings apart, {name}", apart(found, wanted), SAME)


@call(GROUP, phase=Phase.FORWARD)
def requested_by_configuration(ctx: Context) -> Iterator[Check]:
    """output_attentions, output_hidden_states and return_dict of a configuration act as those of the call.

    For the model without a head, with one for the next token, and with one for a sequence. use_cache of a call wins.
    """
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

    kinds = {"none": AutoModel, "next token": AutoModelForCausalLM, "sequence": AutoModelForSequenceClassification}
    for model in filter(known, DECODERS):
        folder = Variant(model, {"pad_token_id": 0}).written(ctx, "policy")
        for kind, auto in kinds.items():
            made = auto.from_pretrained(folder, attn_implementation="eager").eval()
            title = f"{model}, head of {kind}"
            every = {"output_attentions": True, "output_hidden_states": True}
            with torch.no_grad():
                wanted = made(input_ids=ids(), **every)
                made.config.output_attentions = made.config.output_hidden_states = True
                found = made(input_ids=ids())
            for field in ("attentions", "hidden_states"):
                yield equal(f"{field} by configuration, {title}", found.get(field) is not None, bound=True)
                if found.get(field) is not None:
                    yield at_most(f"{field} apart, {title}", apart(found[field], wanted[field]), 0.0)
            made.config.output_attentions = made.config.output_hidden_states = False
            with torch.no_grad():
                few = made(input_ids=ids(), return_dict=False, use_cache=False)
                plain = made(input_ids=ids(), use_cache=False)
            yield equal(f"a tuple, {title}", isinstance(few, tuple), bound=True)
            yield at_most(f"tuple apart, {title}", apart(few[0], plain[0]), 0.0)
            yield equal(
                f"length of the tuple, {title}", len(few), len([each for each in plain.values() if each is not None])
            )


@call(GROUP, phase=Phase.FORWARD)
def positions_of_classifiers(ctx: Context) -> Iterator[Check]:
    """Models with each head and without one read position_ids: padded on the left, a row scores as it does alone.

    Positions with gaps change the scores, and so does a second document that counts from zero behind a first one.
    """
    import torch

    alone = ids()[:1]
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), alone], dim=1)
    mask = (padded > 0).long()
    places = (mask.cumsum(-1) - 1).clamp_min(0)
    gaps, packed = torch.tensor([[0, 0, 0, 0, 1, 2, 4, 6, 8]]), torch.tensor([[0, 0, 0, 0, 1, 2, 0, 1, 2]])
    folders = {model: Variant(model, {"pad_token_id": 0}).written(ctx, "positions") for model in POSITIONED}
    for (model, prefix), head in itertools.product(POSITIONED.items(), HEADS):
        kind = inputs_of_classes.class_of(prefix, head)
        if kind is None:
            continue
        torch.manual_seed(0)
        made = kind.from_pretrained(folders[model], attn_implementation="eager", use_cache=False).eval()
        title = f"{prefix}{head}"
        given = {"input_ids": padded.expand(3, -1), "attention_mask": mask.expand(3, -1)}
        with torch.no_grad():
            wanted = main_output(made(input_ids=alone))
            every = main_output(made(**given, position_ids=torch.cat([places, gaps, packed])))
        found, spread, apiece = every.split(1)
        real = slice(None) if head == "ForSequenceClassification" else slice(3, None)
        yield at_most(f"scores of padded rows apart, {title}", apart(found[:, real], wanted), SAME)
        for name, other in (("gaps", spread), ("two documents", apiece)):
            moved = apart(other[:, real], wanted) > 10 * SAME
            yield equal(f"scores of other positions differ, {name}, {title}", moved, bound=True)


def main_output(output: Any) -> Any:
    """What a model's head scores, or the last states of one without a head."""
    name = next(each for each in ("logits", "start_logits", "last_hidden_state") if each in output)
    return output[name]
