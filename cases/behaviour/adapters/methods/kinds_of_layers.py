"""Adapters of every method on bfloat16 layers and on Conv1D layers, which store (in, out): applied and merged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS, NAMES, TARGETS
from cases.behaviour.adapters.methods.method_merging import SAME
from cases.behaviour.starts import adapted_layers
from cases.reference.tolerance import UNIT_ROUNDOFF
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

MERGING = "Merging adapters of every method"


def half(key: str) -> Iterator[Check]:
    """Merge into bfloat16 weights: the update and the sum may be rounded, and the dtype stays."""
    import torch

    method, plain = METHODS[key], adapted_layers.base().to(torch.bfloat16)
    for safe in (False, True):
        model = layers.adapted(method, plain)
        wanted = layers.expected(model, method, "second", plain=plain)
        merged = model.merge_and_unload(adapter_names=["second"], safe_merge=safe)
        dtypes = {str(parameter.dtype) for parameter in merged.parameters()}
        yield equal("dtypes of the merged model", " ".join(sorted(dtypes)), "torch.bfloat16")
        found = layers.off(layers.held(merged), wanted)
        yield at_most("merged weights off, in roundings", found / UNIT_ROUNDOFF["bf16"], 2.0)


def transposed(key: str) -> Iterator[Check]:
    """Apply, merge and unmerge adapters of Conv1D layers."""
    method, plain = METHODS[key], adapted_layers.conv1d()
    model = layers.adapted(method, plain, fan_in_fan_out=True)
    wanted = {name: layers.expected(model, method, name, plain=plain) for name in NAMES}
    for name in NAMES:
        model.base_model.set_adapter(name)
        yield at_most(f"weights of the {name} off", layers.off(layers.applied(model), wanted[name]), SAME)
    for safe in (False, True):
        for name in TARGETS["first"]:
            layers.module(model, name).merge(safe_merge=safe, adapter_names=["first"])
        yield at_most("merged weights off", layers.off(layers.held(model), wanted["first"]), SAME)
        yield at_most("weights off after merging", layers.off(layers.applied(model), wanted["first"]), SAME)
        model.unmerge_adapter()
        yield at_most("unmerged weights off", layers.off(layers.held(model), layers.held(plain)), SAME)


@call(MERGING, phase=Phase.MERGE, requires=("dora",))
def merge_half_dora(_ctx: Context) -> Iterator[Check]:
    """Merging DoRA into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("dora")


@call(MERGING, phase=Phase.MERGE)
def merge_half_adalora(_ctx: Context) -> Iterator[Check]:
    """Merging AdaLoRA into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("adalora")


@call(MERGING, phase=Phase.MERGE)
def merge_half_loha(_ctx: Context) -> Iterator[Check]:
    """Merging LoHa into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("loha")


@call(MERGING, phase=Phase.MERGE)
def merge_half_lokr(_ctx: Context) -> Iterator[Check]:
    """Merging LoKr into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("lokr")


@call(MERGING, phase=Phase.MERGE)
def merge_half_ia3(_ctx: Context) -> Iterator[Check]:
    """Merging (IA)³ into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("ia3")


@call(MERGING, phase=Phase.MERGE, requires=("vera_of_two_sizes",))
def merge_half_vera(_ctx: Context) -> Iterator[Check]:
    """Merging VeRA into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("vera")


@call(MERGING, phase=Phase.MERGE, requires=("peft_HRAConfig",))
def merge_half_hra(_ctx: Context) -> Iterator[Check]:
    """Merging HRA into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("hra")


@call(MERGING, phase=Phase.MERGE)
def merge_half_boft(_ctx: Context) -> Iterator[Check]:
    """Merging BOFT into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("boft")


@call(MERGING, phase=Phase.MERGE, requires=("skew_oft",))
def merge_half_oft(_ctx: Context) -> Iterator[Check]:
    """Merging OFT into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("oft")


@call(MERGING, phase=Phase.MERGE, requires=("peft_FourierFTConfig",))
def merge_half_fourierft(_ctx: Context) -> Iterator[Check]:
    """Merging FourierFT into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("fourierft")


@call(MERGING, phase=Phase.MERGE, requires=("peft_VBLoRAConfig",))
def merge_half_vblora(_ctx: Context) -> Iterator[Check]:
    """Merging VB-LoRA into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("vblora")


@call(MERGING, phase=Phase.MERGE, requires=("peft_MissConfig",))
def merge_half_miss(_ctx: Context) -> Iterator[Check]:
    """Merging MiSS into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("miss")


@call(MERGING, phase=Phase.MERGE, requires=("peft_MissConfig",))
def merge_half_miss_mini(_ctx: Context) -> Iterator[Check]:
    """Merging MiSS ("mini") into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("miss_mini")


@call(MERGING, phase=Phase.MERGE, requires=("peft_MissConfig",))
def merge_half_miss_bat(_ctx: Context) -> Iterator[Check]:
    """Merging MiSS ("bat") into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("miss_bat")


@call(MERGING, phase=Phase.MERGE, requires=("peft_C3AConfig",))
def merge_half_c3a(_ctx: Context) -> Iterator[Check]:
    """Merging C3A into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("c3a")


@call(MERGING, phase=Phase.MERGE, requires=("peft_RoadConfig",))
def merge_half_road(_ctx: Context) -> Iterator[Check]:
    """Merging RoAd into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("road")


@call(MERGING, phase=Phase.MERGE, requires=("peft_DeloraConfig",))
def merge_half_delora(_ctx: Context) -> Iterator[Check]:
    """Merging DeLoRA into bfloat16 weights loses no more than two roundings, and keeps their dtype."""
    yield from half("delora")


@call(MERGING, phase=Phase.MERGE, requires=("dora",))
def merge_transposed_dora(_ctx: Context) -> Iterator[Check]:
    """DoRA adapters of Conv1D layers apply and merge the weights of their formula."""
    yield from transposed("dora")


@call(MERGING, phase=Phase.MERGE)
def merge_transposed_adalora(_ctx: Context) -> Iterator[Check]:
    """AdaLoRA adapters of Conv1D layers apply and merge the weights of their formula."""
    yield from transposed("adalora")


@call(MERGING, phase=Phase.MERGE)
def merge_transposed_ia3(_ctx: Context) -> Iterator[Check]:
    """(IA)³ adapters of Conv1D layers apply and merge the weights of their formula."""
    yield from transposed("ia3")


@call(MERGING, phase=Phase.MERGE, requires=("vera_of_two_sizes",))
def merge_transposed_vera(_ctx: Context) -> Iterator[Check]:
    """VeRA adapters of Conv1D layers apply and merge the weights of their formula."""
    yield from transposed("vera")


@call(MERGING, phase=Phase.MERGE, requires=("peft_FourierFTConfig",))
def merge_transposed_fourierft(_ctx: Context) -> Iterator[Check]:
    """FourierFT adapters of Conv1D layers apply and merge the weights of their formula."""
    yield from transposed("fourierft")


@call(MERGING, phase=Phase.MERGE, requires=("peft_VBLoRAConfig",))
def merge_transposed_vblora(_ctx: Context) -> Iterator[Check]:
    """VB-LoRA adapters of Conv1D layers apply and merge the weights of their formula."""
    yield from transposed("vblora")
