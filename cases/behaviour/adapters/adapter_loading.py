"""Adapters loaded from folders, caches and files of other kinds, into other dtypes and other shapes.

https://huggingface.co/docs/peft/package_reference/peft_model#peft.PeftModel.from_pretrained
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import compat
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, NEAR
from cases.behaviour.starts import adapted_layers
from cases.model import disk, tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

LOADING = "Loading and exchanging adapters"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = ("adapter_config.json", "adapter_model.safetensors")


def saved(ctx: Context, name: str = "saved", **arguments: Any) -> Path:
    """A folder with the first adapter."""
    folder = ctx.kept / name
    reference.adapted(ctx, FIRST).save_pretrained(folder, **arguments)
    return folder / FIRST.name


def gives(model: Any, base: reference.Base, name: str) -> Check:
    wanted = base.logits(base.of(FIRST))
    return at_most(f"logits off, {name}", relative(reference.logits(model.eval()), wanted), NEAR)


def loaded(ctx: Context, source: Any, **more: Any) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(reference.loaded(ctx), source, **more)


@call(LOADING, phase=Phase.RELOAD, requires=("low_cpu_mem_usage", "adapter_dtype"))
def load_into_dtypes(ctx: Context) -> Iterator[Check]:
    """With autocast_adapter_dtype, adapters in half precision are loaded in float32, else in the dtype of the base.

    So says its documentation; low_cpu_mem_usage=True changes neither dtypes nor values.
    """
    import torch
    from peft import PeftModel

    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    folders, files = {}, {}
    for name, kind in kinds.items():
        folders[name] = saved(ctx, name)
        path = folders[name] / FILES[1]
        files[name] = {key: value.to(kind) for key, value in disk.read_file(path)}
        write(path, files[name])
    for base, file, autocast, low in product(kinds, kinds, (True, False), (True, False)):
        model = PeftModel.from_pretrained(
            reference.loaded(ctx).to(kinds[base]),
            folders[file],
            autocast_adapter_dtype=autocast,
            low_cpu_mem_usage=low,
        )
        wanted = "fp32" if autocast else base
        name = f"base in {base}, file in {file}, autocast={autocast}, low_cpu_mem_usage={low}"
        found = {n: p for n, p in model.named_parameters() if tiny.is_adapter(n)}
        dtypes = "+".join(sorted({compat.dtype_name(each.dtype) for each in found.values()}))
        yield equal(f"dtype, {name}", dtypes, wanted)
        values = {n.replace(".default.", "."): p.detach().float().cpu() for n, p in found.items()}
        expected = {n: v.to(kinds[wanted]).float() for n, v in files[file].items()}
        yield equal(f"tensors that differ, {name}", len(reference.changed(values, expected)), 0)


def write(path: Path, tensors: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt"})


@call(LOADING, phase=Phase.RELOAD)
def load_pickled_adapter(ctx: Context) -> Iterator[Check]:
    """safe_serialization=False writes adapter_model.bin, which load_peft_weights and from_pretrained read."""
    from peft import load_peft_weights

    base, folder = reference.read(ctx), saved(ctx, safe_serialization=False)
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".safetensors"))
    yield equal("files", " ".join(names), "adapter_model.bin")
    expected = {
        f"base_model.model.{name.replace('.first.', '.')}": side.float()
        for name, side in base.sides("first", base.placed(FIRST)).items()
    }
    for name, arguments in (("no device", {}), ("a device", {"device": "cpu"})):
        found = {key: value.cpu() for key, value in load_peft_weights(str(folder), **arguments).items()}
        yield equal(f"tensors that differ, {name}", len(reference.changed(found, expected)), 0)
    yield gives(loaded(ctx, folder), base, "pickled")


@call(LOADING, phase=Phase.RELOAD)
def load_from_cache(ctx: Context) -> Iterator[Check]:
    """Offline, an adapter is loaded from the Hub's cache, by branch and commit."""
    yield from from_cache(ctx, "")


@call(LOADING, phase=Phase.RELOAD)
def load_from_cached_folder(ctx: Context) -> Iterator[Check]:
    """As load_from_cache, with subfolder.

    Offline, peft 0.21 puts the subfolder before the name of the file and passes it as an argument too, so that it looks
    for second/second.
    """
    yield from from_cache(ctx, "second")


def from_cache(ctx: Context, subfolder: str) -> Iterator[Check]:
    """Fill a cache with another adapter, and with the first one at its place; load that in each way."""
    from peft import PeftConfig, load_peft_weights

    base, folder, cache = reference.read(ctx), saved(ctx), ctx.kept / "hub"
    repository = cache / "models--somebody--adapters"
    root = repository / "snapshots" / COMMIT
    for place in (root, root / subfolder):
        place.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copy(folder / name, place / name)
    right = dict(disk.read_file(folder / FILES[1]))
    if subfolder:
        write(root / FILES[1], {name: value * 3 for name, value in right.items()})
    (repository / "refs").mkdir()
    for branch in ("main", "tested"):
        (repository / "refs" / branch).write_text(COMMIT)
    ways: dict[str, dict[str, str]] = {
        "default branch": {},
        "branch": {"revision": "tested"},
        "commit": {"revision": COMMIT},
    }
    for name, way in ways.items():
        arguments = {**way, **({"subfolder": subfolder} if subfolder else {}), "cache_dir": str(cache)}
        config = PeftConfig.from_pretrained("somebody/adapters", **arguments)
        yield equal(f"rank, {name}", config.r, FIRST.rank)
        found = load_peft_weights("somebody/adapters", device="cpu", **arguments)
        yield equal(f"tensors that differ, {name}", len(reference.changed(found, right)), 0)
        yield gives(loaded(ctx, "somebody/adapters", **arguments), base, name)
        model = reference.adapted(ctx, reference.SECOND)
        model.load_adapter("somebody/adapters", adapter_name="default", **arguments)
        model.set_adapter("default")
        yield gives(model, base, f"load_adapter, {name}")


@call(LOADING, phase=Phase.RELOAD)
def load_from_folder_inside(ctx: Context) -> Iterator[Check]:
    """With subfolder, the adapter of that folder is loaded, for from_pretrained, load_adapter and the configuration."""
    from peft import PeftConfig

    base, folder = reference.read(ctx), saved(ctx, "outer")
    yield gives(loaded(ctx, ctx.kept / "outer", subfolder="first"), base, "from_pretrained")
    model = reference.adapted(ctx, reference.SECOND)
    model.load_adapter(ctx.kept / "outer", adapter_name="default", subfolder="first")
    model.set_adapter("default")
    yield gives(model, base, "load_adapter")
    yield equal("rank", PeftConfig.from_pretrained(ctx.kept / "outer", subfolder="first").r, FIRST.rank)
    yield equal("the folder has it", (folder / FILES[0]).exists(), bound=True)


@call(LOADING, phase=Phase.RELOAD, requires=("key_mapping",))
def load_renamed_keys(ctx: Context) -> Iterator[Check]:
    """key_mapping renames the tensors of a file by the first expression that matches, without PEFT's prefix."""
    base, folder = reference.read(ctx), saved(ctx)
    path = folder / FILES[1]
    tensors = {
        name.replace("base_model.model.model.layers", "base_model.model.old.blocks").replace(
            "self_attn", "attention"
        ): t
        for name, t in disk.read_file(path)
    }
    write(path, tensors)
    mapping = {r"^old\.blocks\.(\d+)\.attention": r"model.layers.\1.self_attn", r"^model": "wrong"}
    yield gives(loaded(ctx, folder, key_mapping=mapping), base, "from_pretrained")
    model = reference.adapted(ctx, reference.SECOND)
    model.load_adapter(folder, adapter_name="default", key_mapping=mapping)
    model.set_adapter("default")
    yield gives(model, base, "load_adapter")


@call(LOADING, phase=Phase.RELOAD, requires=("ignore_mismatched_sizes",))
def load_vectors_of_other_sizes(_ctx: Context) -> Iterator[Check]:
    """ignore_mismatched_sizes sets the tensors that fit and leaves the others: vectors, biases and any ranks."""
    import peft

    yield from of_other_sizes(
        {
            "VeRA": (peft.VeraConfig, {}, (4, 8)),
            "DoRA": (peft.LoraConfig, {"use_dora": True}, (4, 8)),
            "LoRA with all biases": (peft.LoraConfig, {"bias": "all"}, (8, 4)),
            "LoRA of one and four ranks": (peft.LoraConfig, {}, (4, 1)),
            "LoRA of two ranks and one": (peft.LoraConfig, {}, (1, 2)),
        }
    )


@call(LOADING, phase=Phase.RELOAD, requires=("ignore_mismatched_sizes",))
def load_two_ranks_into_one(_ctx: Context) -> Iterator[Check]:
    """As load_vectors_of_other_sizes, from files with two ranks into adapters with one.

    PEFT takes tensors with a last dimension of 1, for which a file has twice as many numbers, for 4-bit weights.
    """
    import peft

    yield from of_other_sizes({"LoRA": (peft.LoraConfig, {}, (2, 1)), "VeRA": (peft.VeraConfig, {}, (2, 1))})


def of_other_sizes(settings: Mapping[str, tuple[Any, Mapping[str, Any], tuple[int, int]]]) -> Iterator[Check]:
    """Set the tensors of an adapter with one rank in another with the other rank."""
    import peft
    import torch

    for name, (config, arguments, ranks) in settings.items():
        models = []
        for rank in ranks:
            torch.manual_seed(rank)
            made = config(r=rank, target_modules=list(adapted_layers.TARGETS), **arguments)
            models.append(peft.get_peft_model(adapted_layers.base(), made))
        source, target = models
        with torch.no_grad():
            for number, parameter in enumerate(source.parameters()):
                if parameter.requires_grad:
                    parameter.copy_(torch.full_like(parameter, 0.5 + number / 64))
        state = peft.get_peft_model_state_dict(source)
        before = {key: value.clone() for key, value in peft.get_peft_model_state_dict(target).items()}
        peft.set_peft_model_state_dict(target, state, ignore_mismatched_sizes=True)
        after = peft.get_peft_model_state_dict(target)
        fits = {key for key in before if before[key].shape == state[key].shape}
        wanted = {key: state[key] if key in fits else before[key] for key in before}
        wrong = [key for key in wanted if not torch.equal(after[key], wanted[key])]
        yield equal(f"tensors set or left by mistake, {name}", reference.written(wrong), "none")
        yield equal(f"some do not fit, {name}", len(fits) < len(before), bound=True)


@call(LOADING, phase=Phase.RELOAD, requires=("low_cpu_mem_usage",))
def load_without_drawing(ctx: Context) -> Iterator[Check]:
    """low_cpu_mem_usage=True makes the adapter on the meta device, so loading draws no random numbers."""
    import torch

    folder = saved(ctx)
    states = []
    for _ in range(2):
        model = reference.loaded(ctx)
        torch.manual_seed(3)
        before = torch.get_rng_state()
        from_peft(model, folder)
        states.append(before.equal(torch.get_rng_state()))
    yield equal("the random state is as before", all(states), bound=True)


def from_peft(model: Any, folder: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(model, folder, low_cpu_mem_usage=True)


@call(LOADING, phase=Phase.RELOAD, requires=("low_cpu_mem_usage",))
def fill_empty_adapters(ctx: Context) -> Iterator[Check]:
    """low_cpu_mem_usage=True makes an adapter on the meta device in every way to make one, and a state fills it."""
    import peft

    state = peft.get_peft_model_state_dict(reference.adapted(ctx, FIRST), adapter_name="first")
    base, more = reference.read(ctx), {"adapter_name": "first", "low_cpu_mem_usage": True}
    untasked = replace(FIRST, more={"task_type": None})
    ways: Mapping[str, Callable[[Any], Any]] = {
        "get_peft_model": lambda plain: peft.get_peft_model(plain, FIRST.config(), **more),
        "get_peft_model without a task": lambda plain: peft.get_peft_model(plain, untasked.config(), **more),
        "inject_adapter_in_model": lambda plain: peft.inject_adapter_in_model(FIRST.config(), plain, **more),
        "LoraModel": lambda plain: peft.LoraModel(plain, FIRST.config(), **more),
    }
    for name, way in ways.items():
        model = way(reference.loaded(ctx))
        kinds = {each.is_meta for key, each in model.named_parameters() if tiny.is_adapter(key)}
        yield equal(f"adapters on meta, {name}", str(kinds), "{True}")
        filled = {key.removeprefix("base_model.model."): value for key, value in state.items()}
        prefix = {"inject_adapter_in_model": "", "LoraModel": "model."}.get(name, "base_model.model.")
        named = {f"{prefix}{key}": value for key, value in filled.items()}
        peft.set_peft_model_state_dict(model, named, adapter_name="first", low_cpu_mem_usage=True)
        yield gives(model, base, name)
