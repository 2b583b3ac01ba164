"""from_pretrained by its arguments: device maps, settings of generation, and files in folders below a repository."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.space.verdict import Phase, at_least, equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Model files"
PARTS = ("model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb", "lm_head")
AWAY = (  # the modules that a map puts on the disk
    (),
    ("model.rotary_emb",),
    ("model.layers",),
    ("model.norm", "lm_head"),
    ("model.embed_tokens", "model.rotary_emb"),
)
MOVED = 0.1  # of logits, by weights of the opposite sign


@call(GROUP, phase=Phase.LOAD)
def loaded_by_maps(ctx: Context) -> Iterator[Check]:
    """A model whose device_map puts some modules on the disk, with and without weights, has the logits of the whole.

    Also if the folder for the weights exists.
    """
    import torch
    from transformers import AutoModelForCausalLM

    folder = Variant("llama").written(ctx, "maps")
    ids = tiny.batch(0)
    with torch.no_grad():
        wanted = building.loaded(ctx, folder)(input_ids=ids).logits
    away = ctx.kept / "away"
    for modules in AWAY:
        places = {part: "disk" if part in modules else "cpu" for part in PARTS}
        model = AutoModelForCausalLM.from_pretrained(folder, device_map=places, offload_folder=away)
        with torch.no_grad():
            found = model.eval()(input_ids=ids).logits
        title = " and ".join(modules) or "nothing"
        yield equal(f"logits that differ, {title} on the disk", int((found != wanted).sum()), 0)
        gone = sorted({name.split(".layers.")[0] for name, p in model.named_parameters() if p.device.type == "meta"})
        named = [part for part in modules if part != "model.rotary_emb"]
        yield equal(f"weights away, {title}", bool(gone), bool(named))


@call(GROUP, phase=Phase.LOAD)
def weights_stay_in_files(ctx: Context) -> Iterator[Check]:
    """Weights that a device_map leaves on the disk stay in the safetensors files of the checkpoint: none is written.

    They are read from there at each pass, so that no offload_folder is needed, also from a checkpoint of several files.
    """
    import torch
    from transformers import AutoModelForCausalLM

    ids = tiny.batch(0)
    whole = ingredients.base(ctx)
    wanted = ingredients.logits(whole, ctx)
    for size, parts in (("5GB", ("model.layers", "lm_head")), ("100KB", ("model.layers",))):
        folder = ctx.kept / f"saved-{size}"
        whole.save_pretrained(folder, safe_serialization=True, max_shard_size=size)
        before = sorted(each.name for each in folder.iterdir())
        for part in parts:
            places = {each: "disk" if each == part else "cpu" for each in PARTS}
            away = ctx.kept / f"away-{size}-{part}"
            away.mkdir()
            model = AutoModelForCausalLM.from_pretrained(folder, device_map=places, offload_folder=away).eval()
            with torch.no_grad():
                found = model(input_ids=ids).logits
            title = f"{part} on the disk, files of {size}"
            yield equal(f"logits off, {title}", ingredients.largest_difference(found, wanted), 0.0)
            written = sorted(each.name for each in away.iterdir() if each.suffix == ".dat")
            yield equal(f"weights written, {title}", str(written), "[]")
            inside = [each for name, each in model.named_parameters() if name.startswith(part)]
            yield equal(f"parameters in memory, {title}", sum(not each.is_meta for each in inside), 0)
            kept = {path: path.read_bytes() for path in folder.glob("*.safetensors")}
            negated(kept, part)
            with torch.no_grad():
                again = model(input_ids=ids).logits
            yield at_least(
                f"logits moved by other files, {title}", ingredients.largest_difference(again, wanted), MOVED
            )
            for path, content in kept.items():
                path.write_bytes(content)
        yield equal(
            f"files of the checkpoint afterwards, {size}",
            sorted(e.name for e in folder.iterdir()) == before,
            bound=True,
        )


def negated(paths: Iterable[Path], prefix: str) -> None:
    """Replace files by ones in which the tensors of a part of a model have the opposite sign."""
    from safetensors.torch import load_file, save_file

    for path in paths:
        tensors, other = load_file(path), path.with_suffix(".other")
        save_file({n: -each if n.startswith(prefix) else each for n, each in tensors.items()}, other, {"format": "pt"})
        other.rename(path)


SETTINGS: dict[str, Any] = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 11,
    "max_new_tokens": 3,
    "eos_token_id": [5, 6],
    "pad_token_id": 4,
}


@call(GROUP, phase=Phase.LOAD)
def generation_settings_of_files(ctx: Context) -> Iterator[Check]:
    """from_pretrained reads generation_config.json, or takes tokens from config.json if there is none.

    generate uses these settings, and save_pretrained writes them again.
    """
    from transformers import AutoModelForCausalLM, GenerationConfig

    folder = Variant("llama").written(ctx, "settings")
    plain = AutoModelForCausalLM.from_pretrained(folder).generation_config
    tokens = (plain.bos_token_id, plain.eos_token_id, plain.pad_token_id)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    stated = tuple(config.get(f"{name}_token_id") for name in ("bos", "eos", "pad"))
    yield equal("tokens without a file", str(tokens), str(stated))
    yield equal("samples without a file", bool(plain.do_sample), bound=False)
    GenerationConfig(**SETTINGS).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    found = {name: getattr(model.generation_config, name) for name in SETTINGS}
    yield equal("settings of the file", str(found), str(SETTINGS))
    row = model.generate(tiny.prompt()[:1], eos_token_id=None)
    yield equal("tokens that generate adds", row.shape[1] - tiny.prompt().shape[1], SETTINGS["max_new_tokens"])
    model.save_pretrained(ctx.kept / "again")
    again = AutoModelForCausalLM.from_pretrained(ctx.kept / "again").generation_config
    found = {name: getattr(again, name) for name in SETTINGS}
    yield equal("settings after saving again", str(found), str(SETTINGS))


@call(GROUP, phase=Phase.LOAD)
def model_in_subfolder(ctx: Context) -> Iterator[Check]:
    """With subfolder, a model, its configuration and its tokeniser are read from the folder below the given one."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    model = ingredients.base(ctx)
    model.save_pretrained(ctx.kept / "all" / "model")
    ingredients.tokenizer().save_pretrained(ctx.kept / "all" / "model")
    given = {"subfolder": "model"}
    loaded = AutoModelForCausalLM.from_pretrained(ctx.kept / "all", **given)
    off = ingredients.largest_difference(ingredients.logits(loaded, ctx), ingredients.logits(model, ctx))
    yield equal("logits off", off, 0.0)
    words = AutoTokenizer.from_pretrained(ctx.kept / "all", **given)
    yield equal("words of the tokeniser", len(words), tiny.VOCABULARY)
    width = AutoConfig.from_pretrained(ctx.kept / "all", **given).hidden_size
    yield equal("width of the configuration", width, tiny.HIDDEN)


@call(GROUP, phase=Phase.LOAD)
def adapter_in_subfolder(ctx: Context) -> Iterator[Check]:
    """load_adapter of transformers takes the folder of an adapter below the given one from adapter_kwargs.

    https://huggingface.co/docs/transformers/peft
    """
    import peft

    adapted = ingredients.fill_adapter(peft.get_peft_model(ingredients.base(ctx), ingredients.lora()))
    adapted.save_pretrained(ctx.kept / "all" / "adapter")
    plain = ingredients.base(ctx)
    before = ingredients.logits(plain, ctx)
    plain.load_adapter(str(ctx.kept / "all"), adapter_kwargs={"subfolder": "adapter"})
    found = ingredients.logits(plain, ctx)
    off = ingredients.largest_difference(found, ingredients.logits(adapted, ctx))
    yield equal("logits off", off, 0.0)
    yield equal("the adapter has an effect", ingredients.largest_difference(found, before) > 0, bound=True)
