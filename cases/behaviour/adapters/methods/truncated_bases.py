"""KaSA's truncated bases, loaded, switched, deleted and merged in any dtype; and inputs of BD-LoRA's blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods.lora_variants import GROUP, off
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SIZES, TARGETS
from cases.behaviour.starts.data_layers import spectral
from cases.model import tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

FEW = 5  # ranks of another adapter
NEAR = 1e-4  # relative: a decomposition in float32
PARTS = ("lora_A", "lora_B", "lora_diag")


def config(rank: int = RANK) -> Any:
    from peft import KasaConfig

    return adapted_layers.lora(kasa_config=KasaConfig(), r=rank)


def truncated(weights: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """The weights without their smallest singular values, float64."""
    import torch

    found = {}
    for name, weight in weights.items():
        left, values, right = torch.linalg.svd(weight, full_matrices=False)
        found[name] = left[:, :-rank] * values[:-rank] @ right[:-rank]
    return found


def updates(model: Any, adapter: str = "default", rank: int = RANK) -> dict[str, Any]:
    """The update s B diag(d) A of each layer, float64."""
    found = {}
    for name in TARGETS:
        a, b, d = (getattr(adapted_layers.layer(model, name), part)[adapter] for part in PARTS)
        a, b, d = (getattr(each, "weight", each).detach().double() for each in (a, b, d))
        found[name] = ALPHA / rank * b @ d.diag() @ a
    return found


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one[name] + other[name] for name in one}


def fill(model: Any) -> Any:
    """Give the parts of all adapters the values that belong to their names."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(f"{part}." in name for part in PARTS):
                parameter.copy_(tiny.values(tiny.canonical(name), tuple(parameter.shape)))
    return model


@call(GROUP, phase=Phase.RELOAD, requires=("kasa", "low_cpu_mem_usage"))
def kasa_loaded(ctx: Context) -> Iterator[Check]:
    """A saved KaSA adapter truncates the base that it is loaded onto, from the first pass on, or before it is merged.

    With and without low_cpu_mem_usage, which makes the adapter before its weights are there.
    """
    from peft import PeftModel

    original = spectral()
    saved = fill(adapted_layers.adapted(original, config()))
    folder = ctx.kept / "saved"
    saved.save_pretrained(folder)
    kept = truncated(adapted_layers.originals(original), RANK)
    wanted = added(kept, updates(saved))
    for lazily in (True, False):
        title = f"low_cpu_mem_usage={lazily}"

        def loaded(lazily: bool = lazily) -> Any:  # noqa: FBT001 - bound here
            return PeftModel.from_pretrained(spectral(), folder, low_cpu_mem_usage=lazily).eval()

        model = loaded()
        for number in (1, 2):
            yield off(f"applied weights off, pass {number}, {title}", adapted_layers.applied(model), wanted, NEAR)
        yield off(f"base weights off, {title}", adapted_layers.bases(model), kept, NEAR)
        for safe in (False, True):
            model = loaded()
            model.merge_adapter(safe_merge=safe)
            yield off(f"merged weights off, safe={safe}, {title}", adapted_layers.bases(model), wanted, NEAR)
            model.unmerge_adapter()
            yield off(f"unmerged weights off, safe={safe}, {title}", adapted_layers.bases(model), kept, NEAR)


@call(GROUP, phase=Phase.ADAPT, requires=("kasa", "low_cpu_mem_usage"))
def kasa_of_two_adapters(ctx: Context) -> Iterator[Check]:
    """A second KaSA adapter is trained alone once it is active, truncates the base once, and is deleted whole.

    The first one computes on with its own update; a pass of it leaves the base as it is.
    """
    for lazily in (False, True):
        title = f"low_cpu_mem_usage={lazily}"
        model = adapted_layers.adapted(spectral(), config())
        model.add_adapter("second", config(FEW), low_cpu_mem_usage=lazily)
        if lazily:  # a state that is loaded would fill it
            materialise(model, "second")
        fill(model)
        before = adapted_layers.bases(model)
        for number in (1, 2):
            found = adapted_layers.applied(model)
            yield off(f"weights of the first off, pass {number}, {title}", found, added(before, updates(model)))
        yield off(f"base after passes of the first off, {title}", adapted_layers.bases(model), before, 0.0)
        for active, other in (("second", "default"), ("default", "second")):
            model.set_adapter(active)
            names = {name for name, p in model.named_parameters() if p.requires_grad}
            wrong = {name for name in names if active not in name.split(".")}
            count = len(TARGETS) * len(PARTS)
            yield equal(f"trained beside the {active}, {title}", " ".join(sorted(wrong)) or "none", "none")
            yield equal(f"trained parts of the {active}, {title}", len(names), count)
            adapted_layers.applied(model)  # a first pass
            base, rank = adapted_layers.bases(model), FEW if active == "second" else RANK
            wanted = added(base, updates(model, active, rank))
            yield off(f"weights of the {active} off, {title}", adapted_layers.applied(model), wanted)
            yield off(f"base after further passes off, {active}, {title}", adapted_layers.bases(model), base, 0.0)
            del other
        model.delete_adapter("second")
        left = [name for name in model.state_dict() if "second" in name.split(".")]
        yield equal(f"parts left of the second, {title}", " ".join(left) or "none", "none")
    del ctx


def materialise(model: Any, adapter: str) -> None:
    """Give the parts of an adapter on the meta device memory, as loading a state does."""
    import torch

    for name in TARGETS:
        layer = adapted_layers.layer(model, name)
        for part in ("lora_A", "lora_B"):
            held = getattr(layer, part)[adapter]
            held.weight = torch.nn.Parameter(torch.zeros(held.weight.shape), requires_grad=held.weight.requires_grad)
        diagonal = layer.lora_diag[adapter]
        layer.lora_diag[adapter] = torch.nn.Parameter(torch.zeros(diagonal.shape), requires_grad=diagonal.requires_grad)


@call(GROUP, phase=Phase.MERGE, requires=("kasa",))
def kasa_in_every_dtype(ctx: Context) -> Iterator[Check]:
    """KaSA's update of half-precision parts is computed in float32 on a CPU and rounded once; float64 stays float64.

    As half_products has it for LoRA.
    """
    import torch

    del ctx
    for dtype, roundoff in (
        (torch.float16, 2.0**-11),
        (torch.bfloat16, UNIT_ROUNDOFF["bf16"]),
        (torch.float64, 2.0**-53),
    ):
        from peft import get_peft_model

        torch.manual_seed(0)
        model = fill(get_peft_model(spectral().to(dtype), config(), autocast_adapter_dtype=False)).eval()
        wanted = updates(model)
        for name in TARGETS:
            layer = adapted_layers.layer(model, name)
            before = layer.get_base_layer().weight.detach().clone()
            for safe in (False, True):
                layer.merge(safe_merge=safe)
                after = layer.get_base_layer().weight.detach()
                yield equal(f"dtype of the merged weight, {name}, {dtype}", str(after.dtype), str(dtype))
                if dtype is not torch.float64:
                    # One number in a thousand may round to its other neighbour: float32 sums in another order.
                    once = (before + wanted[name].float().to(dtype)).double()
                    far = (after.double() - once).abs() > 2 * roundoff * once.abs().clamp(min=1e-3)
                    share = float(far.double().mean())
                    yield at_most(f"share of merged numbers off, {name}, {dtype}, safe={safe}", share, 0.001)
                off_by = relative(after.double(), before.double() + wanted[name]) / roundoff
                yield at_most(f"merged weights off, in roundings, {name}, {dtype}, safe={safe}", off_by, 64.0)
                layer.unmerge()
                layer.get_base_layer().weight.data.copy_(before)


@call(GROUP, phase=Phase.FORWARD, requires=("bdlora",))
def block_diagonal_inputs(ctx: Context) -> Iterator[Check]:
    """BD-LoRA takes inputs of one to four dimensions as their rows, with blocks of A and with blocks of B."""
    import torch
    from peft import BdLoraConfig

    del ctx
    chosen = BdLoraConfig(target_modules_bd_a=["wide"], target_modules_bd_b=["tall"], nblocks=4)
    model = adapted_layers.fill(adapted_layers.adapted(adapted_layers.base(), adapted_layers.lora(use_bdlora=chosen)))
    for name, (out, into) in SIZES.items():
        layer = adapted_layers.layer(model, name)
        given = tiny.values(f"rows of {name}", (12, into))
        with torch.no_grad():
            rows = layer(given)
            for shape in ((12,), (3, 4), (2, 3, 2)):
                found = layer(given.reshape(*shape, into))
                yield equal(f"shape of outputs, {name}, {shape}", str(tuple(found.shape)), str((*shape, out)))
                yield at_most(
                    f"outputs off, {name}, {shape}", relative(found.reshape(12, -1), rows), adapted_layers.SAME
                )
            single = torch.stack([layer(row) for row in given])
        yield at_most(f"outputs off, {name}, one row", worst([relative(single, rows)]), adapted_layers.SAME)
