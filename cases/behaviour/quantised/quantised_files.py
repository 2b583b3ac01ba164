"""Quantised checkpoints: what is saved, and what loading makes of it, byte by byte.

https://huggingface.co/docs/transformers/quantization/bitsandbytes
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import compat
from cases.model import architectures, disk
from cases.reference.tolerance import relative
from cases.space.options import Options
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.options import DType
    from cases.space.verdict import Check

GROUP = "Quantised checkpoints"


def loaded(ctx: Context, folder: Path, kind: str, **arguments: Any) -> Any:
    from transformers import AutoModelForCausalLM

    options = Options().but(flow="load", method="full", torch_dtype=kind)
    given = {**compat.load_arguments(options, ctx.place.device), "device_map": {"": ctx.place.device}}
    return AutoModelForCausalLM.from_pretrained(folder, **given, **arguments).eval()


def state(model: Any) -> dict[str, Any]:
    return {name: each.detach().cpu() for name, each in model.state_dict().items()}


def raw(tensor: Any) -> Any:
    import torch

    return tensor.contiguous().flatten().view(torch.uint8)


@call(GROUP, phase=Phase.RELOAD, requires=("4bit_loading", "storage"))
def reloaded_four_bit_files(ctx: Context) -> Iterator[Check]:
    """A saved 4-bit model comes back with the bytes and dtypes of its file, in whichever dtype the rest is loaded."""
    import torch
    from transformers import BitsAndBytesConfig

    source = architectures.checkpoint(Options().but(flow="load", method="full"), ctx.cache)
    for storage, double, kind in product(("uint8", "bfloat16"), (False, True), ("nf4", "fp4")):
        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=kind,
            bnb_4bit_quant_storage=getattr(torch, storage),
            bnb_4bit_use_double_quant=double,
            bnb_4bit_compute_dtype=torch.float32,
        )
        folder = ctx.kept / f"{storage}-{double}-{kind}"
        first = loaded(ctx, source, "bf16", quantization_config=config)
        first.save_pretrained(folder)
        file = disk.tensors(folder)
        packed = {name for name in file if f"{name}.quant_map" in file}
        short = f"{kind}, {storage}, double={double}"
        yield at_least(f"packed weights, {short}", len(packed), 14)
        kinds = {str(file[name].dtype) for name in packed}
        yield equal(f"dtype of packed weights, {short}", "+".join(kinds), f"torch.{storage}")
        ids = torch.arange(3, 11, device=ctx.place.device)[None]
        asked: DType
        for asked in ("fp32", "bf16"):
            again = loaded(ctx, folder, asked)
            found, name = state(again), f"{short}, {asked}"
            off = [key for key in packed if not raw(found[key]).equal(raw(file[key]))]
            yield equal(f"packed weights that differ, {name}", "+".join(off) or "none", "none")
            statistics = [key for key in file if key.rpartition(".weight.")[0] and key in found]
            off = [key for key in statistics if not raw(found[key]).equal(raw(file[key]))]
            yield equal(f"statistics that differ, {name}", "+".join(off) or "none", "none")
            yield at_least(f"statistics, {name}", len(statistics), 2 * len(packed))
            others = [key for key in file if ".weight." not in key and key not in packed]
            rest = [key for key in others if not found[key].equal(file[key].to(compat.dtype(asked)))]
            yield equal(f"other weights that differ, {name}", "+".join(rest) or "none", "none")
            if asked == "bf16":
                with torch.no_grad():
                    logits = [model.train()(input_ids=ids).logits.float() for model in (first, again)]
                yield at_most(f"logits off, {name}", relative(logits[1], logits[0]), 0.0)


@call(GROUP, phase=Phase.RELOAD, requires=("8bit_loading",))
def reloaded_eight_bit_files(ctx: Context) -> Iterator[Check]:
    """A saved 8-bit model comes back with the numbers, scales and outputs that it had."""
    import torch
    from transformers import BitsAndBytesConfig

    source = architectures.checkpoint(Options().but(flow="load", method="full"), ctx.cache)
    first = loaded(ctx, source, "bf16", quantization_config=BitsAndBytesConfig(load_in_8bit=True))
    folder = ctx.kept / "int8"
    first.save_pretrained(folder)
    again = loaded(ctx, folder, "bf16")
    file, found = disk_tensors(folder), state(again)
    scales = {name for name in file if name.endswith(".SCB")}
    yield at_least("scales", len(scales), 14)
    for name, chosen in (
        ("scales", scales),
        ("weights", {name.replace(".SCB", ".weight") for name in scales}),
        ("other tensors", {name for name in file if name.endswith(("norm.weight", "embed_tokens.weight"))}),
    ):
        off = [key for key in chosen if not (found[key].dtype == file[key].dtype and found[key].equal(file[key]))]
        yield equal(f"{name} that differ", "+".join(sorted(off)) or "none", "none")
    ids = torch.arange(3, 11, device=ctx.place.device)[None]
    with torch.no_grad():
        logits = [model(input_ids=ids).logits.float() for model in (first, again)]
    yield at_most("logits off", relative(logits[1], logits[0]), 0.0)


def disk_tensors(folder: Path) -> dict[str, Any]:
    """The tensors of the file; those in 8 bits have a dtype that ``disk`` does not know."""
    from safetensors.torch import load_file

    return {name: each for path in folder.glob("*.safetensors") for name, each in load_file(path).items()}
