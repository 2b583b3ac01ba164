"""Files of VB-LoRA: logits, or only the best vectors with their weights, and the bank that all layers share.

https://huggingface.co/docs/peft/package_reference/vblora
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Life of adapters of every method"
NEEDS = ("peft_VBLoRAConfig",)
LENGTH, TOPK = 4, 3
SAME = 1e-5  # relative: a softmax in float32, and its last weight as the rest
# The numbers of vectors around the limits of the smallest dtypes of indices, which start at 0.
KINDS = {20: "torch.uint8", 255: "torch.uint8", 256: "torch.int16", 300: "torch.int16", 32768: "torch.int32"}
LAYERS = ("wide", "tall")


def base() -> Any:
    import torch

    torch.manual_seed(3)
    made = torch.nn.Sequential()
    made.add_module("wide", torch.nn.Linear(2 * LENGTH, 3 * LENGTH))
    made.add_module("tall", torch.nn.Linear(3 * LENGTH, LENGTH))
    return made.eval()


def adapted(vectors: int, *, only_best: bool, seed: int = 0) -> Any:
    import peft
    import torch

    torch.manual_seed(seed)
    settings = {"num_vectors": vectors, "vector_length": LENGTH, "topk": TOPK, "r": 2, "init_logits_std": 1.0}
    more = {"init_vector_bank_bound": 1.0, "save_only_topk_weights": only_best}
    return peft.get_peft_model(base(), peft.VBLoRAConfig(target_modules=[*LAYERS], **settings, **more)).eval()


def logits(model: Any) -> dict[str, Any]:
    """The logits of each layer and side, by their names in a file."""
    return {
        f"base_model.model.{name}.vblora_logits_{side}": getattr(
            model.base_model.model.get_submodule(name), f"vblora_logits_{side}"
        )["default"].detach()
        for name in LAYERS
        for side in "AB"
    }


def stored(folder: Any) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(folder / "adapter_model.safetensors")
    return found


@call(GROUP, phase=Phase.SAVE, requires=NEEDS)
def vblora_files(ctx: Context) -> Iterator[Check]:
    """VB-LoRA saves the logits and the bank, and nothing of the base; loading it gives the same outputs."""
    from peft import PeftModel

    model, folder = adapted(20, only_best=False), ctx.kept / "logits"
    model.save_pretrained(folder)
    found, wanted = stored(folder), logits(model)
    wanted["base_model.vblora_vector_bank"] = model.base_model.vblora_vector_bank["default"].detach()
    yield equal("names", " ".join(sorted(found)), " ".join(sorted(wanted)))
    differ = [name for name, each in wanted.items() if name in found and not found[name].equal(each)]
    yield equal("tensors with other values", " ".join(differ) or "none", "none")
    again = PeftModel.from_pretrained(base(), folder).eval()
    yield from alike("logits", model, again, 0.0)


@call(GROUP, phase=Phase.SAVE, requires=NEEDS)
def vblora_files_of_best_vectors(ctx: Context) -> Iterator[Check]:
    """With save_only_topk_weights, VB-LoRA saves the indices of the best vectors in the smallest dtype that holds them.

    Beside them are all weights but the last, which is the rest to 1. Loading gives the same outputs.
    """
    import torch
    from peft import PeftModel

    for vectors, kind in KINDS.items():
        model, folder = adapted(vectors, only_best=True), ctx.kept / f"best-{vectors}"
        model.save_pretrained(folder)
        found = stored(folder)
        names = {f"{name}_topk_{part}" for name in logits(model) for part in ("indices", "weights")}
        names.add("base_model.vblora_vector_bank")
        yield equal(f"names, {vectors} vectors", " ".join(sorted(found)), " ".join(sorted(names)))
        off = 0.0
        for name, each in logits(model).items():
            best = each.double().sort(dim=-1, descending=True)
            indices = best.indices[..., :TOPK]
            weights = torch.softmax(best.values[..., :TOPK], dim=-1)[..., :-1]
            stored_indices, stored_weights = (found.get(f"{name}_topk_{part}") for part in ("indices", "weights"))
            if stored_indices is None or stored_weights is None:
                continue
            yield equal(f"dtype of indices, {vectors} vectors", str(stored_indices.dtype), kind)
            yield equal(f"indices that differ, {vectors} vectors", int((stored_indices.long() != indices).sum()), 0)
            off = max(off, relative(stored_weights, weights))
        yield at_most(f"weights off, {vectors} vectors", off, SAME)
        again = PeftModel.from_pretrained(base(), folder).eval()
        yield from alike(f"{vectors} vectors", model, again, SAME)


def alike(title: str, one: Any, other: Any, within: float) -> Iterator[Check]:
    import torch

    given = torch.eye(2 * LENGTH)
    with torch.no_grad():
        yield at_most(f"outputs off after loading, {title}", relative(other(given), one(given)), within)


@call(GROUP, phase=Phase.SAVE, requires=NEEDS)
def vblora_counts(ctx: Context) -> Iterator[Check]:
    """get_nb_savable_parameters counts what the files hold: the bank, and logits or indices and weights in float32."""
    del ctx
    for vectors, bytes_of_index in ((20, 1), (300, 2)):
        for only_best in (False, True):
            model = adapted(vectors, only_best=only_best)
            rows = sum(each[..., 0].numel() for each in logits(model).values())
            few = int(rows * TOPK * bytes_of_index / 4 + rows * (TOPK - 1))
            of_logits = few if only_best else rows * vectors
            wanted = (vectors * LENGTH + of_logits, 0)
            found = tuple(int(each) for each in model.base_model.get_nb_savable_parameters())
            yield equal(f"numbers, {vectors} vectors, only_best={only_best}", str(found), str(wanted))
