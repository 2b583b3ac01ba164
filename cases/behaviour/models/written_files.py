"""The files that a model writes, with their texts, and what state dicts and new models hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.models.building import Variant
from cases.behaviour.models.returned_fields import apart, ids, known
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Models"
PAD = 7


@call(GROUP, phase=Phase.SAVE)
def written_by_kinds_of_models(ctx: Context) -> Iterator[Check]:
    """Models that generate write generation_config.json and say so; classifiers and bare models write none."""
    import transformers

    folder = Variant("llama", {"pad_token_id": 0}).written(ctx, "policy")
    for name, generates in (
        ("LlamaForCausalLM", True),
        ("LlamaModel", False),
        ("LlamaForSequenceClassification", False),
        ("LlamaForTokenClassification", False),
    ):
        made = getattr(transformers, name).from_pretrained(folder)
        out = ctx.kept / f"saved {name}"
        made.save_pretrained(out)
        yield equal(f"generates, {name}", made.can_generate(), generates)
        yield equal(
            f"has settings of generation, {name}", getattr(made, "generation_config", None) is not None, generates
        )
        files = sorted(each.name for each in out.iterdir())
        wanted = ["config.json", *["generation_config.json"] * generates, "model.safetensors"]
        yield equal(f"files, {name}", ", ".join(files), ", ".join(wanted))


@call(GROUP, phase=Phase.SAVE)
def written_texts(ctx: Context) -> Iterator[Check]:
    """The index of shards lists its tensors in order; a configuration that is loaded and saved gets no new field."""
    made = ingredients.base(ctx)
    made.save_pretrained(ctx.kept / "shards", max_shard_size="20KB")
    text = (ctx.kept / "shards" / "model.safetensors.index.json").read_text()
    index = json.loads(text)
    yield equal("text of the index", text.strip() == json.dumps(index, indent=2, sort_keys=True), bound=True)
    yield equal("parts of the index", ", ".join(index), "metadata, weight_map")
    yield equal("names of tensors in order", list(index["weight_map"]) == sorted(made.state_dict()), bound=True)
    made.save_pretrained(ctx.kept / "first")
    again = type(made).from_pretrained(ctx.kept / "first")
    again.save_pretrained(ctx.kept / "second")
    one, other = (json.loads((ctx.kept / each / "config.json").read_text()) for each in ("first", "second"))
    named = {"_name_or_path"}  # where a model was loaded from, which some versions write
    changed = {
        name for name in {*one, *other} - named if one.get(name) != other.get(name) or (name in one) != (name in other)
    }
    yield equal("fields that changed", ", ".join(sorted(changed)) or "none", "none")
    for each in ("first", "second"):
        lines = (ctx.kept / each / "config.json").read_text().splitlines()
        yield equal(f"fields in order, {each}", lines[1:-1] != [] and list(one) == sorted(one), bound=True)


@call(GROUP, phase=Phase.LOAD)
def read_from_paths(ctx: Context) -> Iterator[Check]:
    """from_pretrained and save_pretrained take a folder as text or as a Path, and read the weights that are there."""
    made = ingredients.base(ctx)
    for kind in (str, Path):
        folder = ctx.kept / f"by {kind.__name__}"
        made.save_pretrained(kind(folder))
        found = type(made).from_pretrained(kind(folder))
        pairs = zip(found.parameters(), made.parameters(), strict=True)
        yield at_most(
            f"weights off, {kind.__name__}", max(float((one - other).abs().max()) for one, other in pairs), 0.0
        )
        yield at_most(f"logits apart, {kind.__name__}", apart(found(ids()).logits, made(ids()).logits), 0.0)


@call(GROUP, phase=Phase.LOAD)
def new_rows_of_padding(ctx: Context) -> Iterator[Check]:
    """A model made from a configuration has zeros in the row of its padding token, and in no other row.

    Each architecture whose embeddings have a padding row; a checkpoint keeps what it has.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    for model in filter(known, ("llama", "qwen", "mistral", "mixtral")):
        folder = Variant(model, {"pad_token_id": PAD}).written(ctx, "padding")
        made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        rows = made.get_input_embeddings().weight
        zeros = [place for place in range(tiny.VOCABULARY) if not rows[place].any()]
        yield equal(f"rows of zeros, {model}", str(zeros), f"[{PAD}]")
        loaded = AutoModelForCausalLM.from_pretrained(folder).get_input_embeddings().weight
        yield equal(f"rows of zeros loaded, {model}", int((~loaded.any(-1)).sum()), 0)


@call(GROUP, phase=Phase.SAVE)
def names_of_state_dicts(ctx: Context) -> Iterator[Check]:
    """A state dict holds parameters alone: causal masks and rotary frequencies are made anew.

    Its names are those of the parameters, and a model loads what another saves.
    """
    from transformers import AutoModelForCausalLM

    for model in filter(known, ("llama", "qwen", "mistral", "mixtral", "gpt2")):
        folder = Variant(model).written(ctx, "names")
        made = AutoModelForCausalLM.from_pretrained(folder)
        held = set(made.state_dict()) - {name for name, _ in made.named_parameters(remove_duplicate=False)}
        yield equal(f"names that are no parameters, {model}", ", ".join(sorted(held)) or "none", "none")
        other = AutoModelForCausalLM.from_pretrained(folder)
        found: Any = other.load_state_dict(made.state_dict())
        yield equal(f"names that do not fit, {model}", len(found.missing_keys) + len(found.unexpected_keys), 0)
