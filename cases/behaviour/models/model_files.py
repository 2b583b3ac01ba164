"""Checkpoints as ``from_pretrained`` reads and ``save_pretrained`` writes them: dtypes, shards, names, configurations.

https://huggingface.co/docs/transformers/main_classes/model
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import compat
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import disk, experts, tiny
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.options import DType
    from cases.space.verdict import Check

GROUP = "Files of models"
UNEVEN = 1 + 2.0**-10  # no half precision holds the weights times this number
PLAIN = ("llama", "gpt2", "t5")
BUFFERS = ("inv_freq", ".attn.bias", ".masked_bias")  # no numbers of a checkpoint


def written(ctx: Context, model: str, name: str, kind: DType = "fp32", factor: float = UNEVEN, **changes: Any) -> Path:
    """A checkpoint whose tensors are stored in this dtype."""
    from safetensors.torch import save_file

    folder = Variant(model, changes).written(ctx, name)
    tensors = {key: (value * factor).to(compat.dtype(kind)) for key, value in disk.tensors(folder).items()}
    save_file(tensors, folder / disk.WRITTEN_AS, metadata={"format": "pt"})
    return folder


def values(model: Any) -> dict[str, Any]:
    """The parameters of a model by their names in a published checkpoint."""
    return experts.published({name: each.detach().cpu() for name, each in model.named_parameters()})


def reopened(folder: Path, model: str) -> Any:
    """The model of a folder that transformers wrote, which leaves out fields with their usual value."""
    import transformers

    class_ = transformers.AutoModelForSeq2SeqLM if model == "t5" else transformers.AutoModelForCausalLM
    return class_.from_pretrained(folder)


def different(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The names of tensors that differ in a number, a shape or a dtype, or that one side lacks."""
    import torch

    both = found.keys() & wanted.keys()
    off = {
        name for name in both if found[name].dtype != wanted[name].dtype or not torch.equal(found[name], wanted[name])
    }
    return "+".join(sorted((found.keys() ^ wanted.keys()) | off)) or "none"


@call(GROUP, phase=Phase.LOAD)
def loaded_dtypes(ctx: Context) -> Iterator[Check]:
    """from_pretrained gives weights the dtype that the caller names in either form, each number rounded once."""
    import torch

    default = torch.get_default_dtype()
    for model in PLAIN:
        stored: DType
        for stored in ("fp32", "bf16"):
            folder = written(ctx, model, f"as {stored}", stored)
            for asked in (torch.float32, torch.bfloat16, "bfloat16", "float32"):
                kind = asked if isinstance(asked, torch.dtype) else getattr(torch, asked)
                loaded = building.loaded(ctx, folder, torch_dtype=asked)
                wanted = {name: each.to(kind) for name, each in disk.tensors(folder).items()}
                name = f"{model} in {stored} as {asked}"
                yield equal(f"tensors that differ, {name}", different(values(loaded), wanted), "none")
                yield equal(
                    f"dtype of the model, {name}", f"{loaded.dtype} {dtype_of(loaded.config)}", f"{kind} {kind}"
                )
    yield equal("the default dtype is as before", torch.get_default_dtype() == default, bound=True)


def dtype_of(config: Any) -> Any:
    """The dtype of a configuration; some versions keep the name that the caller gave."""
    import torch

    found = getattr(config, "dtype", None) or config.torch_dtype
    return getattr(torch, found) if isinstance(found, str) else found


@call(GROUP, phase=Phase.LOAD)
def loaded_automatic_dtypes(ctx: Context) -> Iterator[Check]:
    """The dtype "auto" is that of the configuration, and without one, that of the checkpoint's weights."""
    ways: tuple[tuple[DType, str | None], ...] = (
        *(("fp32", "bfloat16"), ("bf16", "float32")),
        *(("bf16", None), ("fp32", None), ("fp16", None)),
    )
    for stored, stated in ways:
        changes: dict[str, Any] = {"torch_dtype": building.REMOVED if stated is None else stated}
        folder = written(ctx, "llama", f"{stored} {stated}", stored, **changes)
        loaded = building.loaded(ctx, folder, torch_dtype="auto")
        kinds = {compat.dtype_name(each.dtype) for each in loaded.parameters()}
        wanted = {"bfloat16": "bf16", "float32": "fp32", None: stored}[stated]
        yield equal(f"dtypes, weights in {stored}, configuration with {stated}", "+".join(sorted(kinds)), wanted)


@call(GROUP, phase=Phase.SAVE)
def saved_shards(ctx: Context) -> Iterator[Check]:
    """max_shard_size writes shards of at most this size, and an index of every tensor; loading joins them."""
    for model in PLAIN:
        folder = written(ctx, model, "whole")
        loaded, out = building.loaded(ctx, folder), ctx.kept / f"{model}-shards"
        loaded.save_pretrained(out, max_shard_size="60KB")
        shards = sorted(out.glob("model-*.safetensors"))
        yield at_least(f"shards, {model}", len(shards), 3)
        index = json.loads((out / "model.safetensors.index.json").read_text())
        held = {name: path.name for path in shards for name, _ in disk.read_file(path)}
        yield equal(f"the index names each tensor, {model}", index["weight_map"] == held, bound=True)
        sizes = [sum(each.nbytes for _, each in disk.read_file(path)) for path in shards]
        counts = [sum(1 for _ in disk.read_file(path)) for path in shards]
        most = max((size for size, count in zip(sizes, counts, strict=True) if count > 1), default=0)
        yield at_most(f"bytes of a shard with several tensors, {model}", most, 60_000)
        yield equal(f"bytes of all, {model}", index["metadata"]["total_size"], sum(sizes))
        source = disk.tensors(folder)
        yield equal(f"tensors that differ on disk, {model}", different(disk.tensors(out), source), "none")
        yield equal(f"tensors that differ, {model}", different(values(reopened(out, model)), source), "none")


@call(GROUP, phase=Phase.SAVE)
def saved_again(ctx: Context) -> Iterator[Check]:
    """save_pretrained writes the names, numbers and dtypes that were loaded, and every field of the configuration."""
    for model in PLAIN:
        folder = written(ctx, model, "source", initializer_range=0.125, own_field=[1, {"two": 3}])
        loaded, out = building.loaded(ctx, folder), ctx.kept / f"{model}-again"
        loaded.save_pretrained(out)
        yield equal(f"tensors that differ, {model}", different(disk.tensors(out), disk.tensors(folder)), "none")
        copy = reopened(out, model).to(ctx.place.device).eval()
        yield at_most(f"outputs off, {model}", float((outputs(copy) - outputs(loaded)).abs().max()), 0.0)
        again, own = copy.config.to_dict(), loaded.config.to_dict()
        before = disk.config(folder)
        lost = {key for key in before if again.get(key) != before[key] and key not in RENAMED}
        yield equal(f"fields lost or changed, {model}", "+".join(sorted(lost)) or "none", "none")
        changed = {key for key in own if again.get(key) != own[key] and not key.startswith("_")}
        yield equal(f"fields that differ after loading, {model}", "+".join(sorted(changed)) or "none", "none")


def outputs(model: Any) -> Any:
    """The logits of a batch, which a decoder reads too."""
    import torch

    ids = tiny.batch(0).to(next(model.parameters()).device)
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, **more).logits


# rope_theta is a field of rope_parameters in some versions; resized_rows_t5 shows what becomes of the last one.
RENAMED = ("rope_theta", "rope_scaling", "torch_dtype", "transformers_version", "tie_word_embeddings")


@call(GROUP, phase=Phase.LOAD)
def loaded_with_report(ctx: Context) -> Iterator[Check]:
    """output_loading_info lists missing, unexpected and mismatched tensors; what fits is loaded, the rest is made."""
    from safetensors.torch import save_file

    folder = written(ctx, "llama", "changed")
    tensors = disk.tensors(folder)
    missing, renamed, other = "model.norm.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight"
    changed = {name: each for name, each in tensors.items() if name not in (missing, renamed)}
    changed["model.layers.0.mlp.upward.weight"] = tensors[renamed]
    changed[other] = tensors[other][:-8].contiguous()
    save_file(changed, folder / disk.WRITTEN_AS, metadata={"format": "pt"})
    found, report = loaded_and_report(folder, ignore_mismatched_sizes=True)
    lists = {key: {name_of(each) for each in report[f"{key}_keys"]} for key in ("missing", "unexpected", "mismatched")}
    yield equal("missing", "+".join(sorted(lists["missing"] - {other})), "+".join(sorted((missing, renamed))))
    yield equal("unexpected", "+".join(sorted(lists["unexpected"])), "model.layers.0.mlp.upward.weight")
    yield equal("mismatched", "+".join(sorted(lists["mismatched"])), other)
    right = {name: each for name, each in tensors.items() if name not in (missing, renamed, other)}
    loaded = values(found)
    yield equal("tensors that differ", different({name: loaded[name] for name in right}, right), "none")
    yield equal("shape of the head", str(tuple(loaded[other].shape)), str(tuple(tensors[other].shape)))
    finite = all(bool(each.isfinite().all()) for each in loaded.values())
    yield equal("all numbers are finite", finite, bound=True)
    yield equal("a new norm is ones", bool((loaded[missing] == 1).all()), bound=True)
    try:
        loaded_and_report(folder)
    except RuntimeError as error:
        yield equal("error", "size" in str(error), bound=True)
    else:
        yield equal("error", "none", "a size mismatch")


def name_of(entry: Any) -> str:
    """The name of a tensor, which may come with its shapes."""
    return str(entry if isinstance(entry, str) else entry[0])


def loaded_and_report(folder: Path, **arguments: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **arguments)


@call(GROUP, phase=Phase.LOAD)
def loaded_from_elsewhere(ctx: Context) -> Iterator[Check]:
    """subfolder, variant and a cache of the Hub with a revision lead to the files they name."""
    from transformers import AutoModelForCausalLM

    right, wrong = written(ctx, "llama", "right"), written(ctx, "llama", "wrong", factor=3.0)
    source = disk.tensors(right)

    def check(name: str, place: Any, **arguments: Any) -> Check:
        found = AutoModelForCausalLM.from_pretrained(place, torch_dtype="auto", **arguments)
        return equal(f"tensors that differ, {name}", different(values(found), source), "none")

    outer = ctx.kept / "outer"
    shutil.copytree(wrong, outer)
    shutil.copytree(right, outer / "inner")
    yield check("subfolder", outer, subfolder="inner")
    shutil.copy(right / disk.WRITTEN_AS, outer / "model.own.safetensors")
    yield check("variant", outer, variant="own")
    commit, cache = "0123456789abcdef0123456789abcdef01234567", ctx.kept / "hub"
    repository = cache / "models--somebody--model"
    (repository / "refs").mkdir(parents=True)
    shutil.copytree(outer, repository / "snapshots" / commit)
    (repository / "refs" / "main").write_text(commit)
    (repository / "refs" / "tested").write_text(commit)
    for revision in ("tested", commit, "main"):
        arguments = {"revision": revision, "cache_dir": str(cache), "subfolder": "inner"}
        yield check(f"cache, {revision[:6]}", "somebody/model", **arguments)
