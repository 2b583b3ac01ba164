"""Adapters of every method: what a layer applies with them, and what merging writes, by the formula of the paper.

Two adapters with different arguments are on one layer, and one of them also on a layer with other dimensions. The
layers have biases.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers, states
from cases.behaviour.adapters.methods.layers import METHODS, NAMES, TARGETS
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative, worst
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

MERGING = "Merging adapters of every method"
SAME = 2e-6  # relative: the same arithmetic in float32, in another order


def applied(method: Method) -> Iterator[Check]:
    """Compare what the layers apply with one adapter, with the other, and with both."""
    model = layers.adapted(method)
    plain = layers.held(adapted_layers.base())
    for name in NAMES:
        model.base_model.set_adapter(name)
        wanted = layers.expected(model, method, name)
        yield from states.reported(f"{name} active", model, method, [name])
        yield at_least(f"what the {name} does", layers.off(wanted, plain), 0.01)
        yield at_most(f"weights of the {name} off", layers.off(layers.applied(model), wanted), SAME)
        found = layers.applied(model.train())
        yield at_most(f"weights of the {name} off in training", layers.off(found, wanted), SAME)
        model.eval()
    with model.disable_adapter():
        yield at_most("weights off while disabled", layers.off(layers.applied(model), plain), SAME)
        yield from states.reported("disabled", model, method, [NAMES[-1]], enabled=False)
    yield from states.reported("enabled again", model, method, [NAMES[-1]])
    if method.together:
        model.base_model.set_adapter([*NAMES])
        wanted = layers.expected(model, method, *NAMES)
        yield at_most("weights of both off", layers.off(layers.applied(model), wanted), SAME)
        yield from states.reported("both active", model, method, NAMES)
        model.merge_adapter()
        yield from states.reported("both merged", model, method, NAMES, merged=NAMES)
        yield at_most("merged weights of both off", layers.off(layers.held(model), wanted), SAME)
        yield at_most("weights of both off after merging", layers.off(layers.applied(model), wanted), SAME)
        model.unmerge_adapter()
        yield at_most("unmerged weights of both off", layers.off(layers.held(model), plain), SAME)
        yield from states.reported("both unmerged", model, method, NAMES)


def merge(model: Any, *, safe: bool) -> None:
    for name in TARGETS["second"]:
        layers.module(model, name).merge(safe_merge=safe, adapter_names=["second"])


def merged(method: Method) -> Iterator[Check]:
    """Merge the second adapter while the first is active and the model in training, and take it out again."""
    model = layers.adapted(method).train()
    plain, first, second = (layers.expected(model, method, *names) for names in ((), ("first",), ("second",)))
    for safe in (False, True):
        merge(model, safe=safe)
        yield from states.reported("second merged", model, method, ["first"], merged=["second"])
        yield at_most("merged weights off", layers.off(layers.held(model), second), SAME)
        found = {name: layers.applied(model)[name] for name in TARGETS["second"]}
        wanted = {name: second[name] for name in TARGETS["second"]}
        yield at_most("weights off after merging", layers.off(found, wanted), SAME)
        model.unmerge_adapter()
        yield from states.reported("second unmerged", model, method, ["first"])
        yield at_most("unmerged weights off", layers.off(layers.held(model), plain), SAME)
        yield at_most("weights of the first off after unmerging", layers.off(layers.applied(model), first), SAME)
    unloaded = model.merge_and_unload(adapter_names=["second"], safe_merge=True)
    kinds = {type(unloaded.get_submodule(name)).__module__ for name in plain}
    yield equal("modules of the unloaded layers", " ".join(kinds), "torch.nn.modules.linear")
    yield at_most("weights off after unloading", layers.off(layers.held(unloaded), second), SAME)
    yield from states.unloaded("unloaded", unloaded)


def refused(method: Method) -> Iterator[Check]:
    """A safe merge of an adapter with one number that is not finite raises ValueError, and changes no weight."""
    import torch

    model = layers.adapted(method)
    plain = layers.held(adapted_layers.base())
    parts = [p for n, p in model.named_parameters() if "second" in n and any(mark in n for mark in method.marks)]
    for broken in ("nan", "inf"):
        accepted, changed = 0, 0.0
        for part in parts:
            layers.fill(model, method)
            with torch.no_grad():
                part.view(-1)[-1] = float(broken)
            try:
                merge(model, safe=True)
                accepted += 1
            except ValueError:
                changed = worst([changed, layers.off(layers.held(model), plain)])
        yield equal(f"parts with {broken} that a safe merge accepts", accepted, 0)
        yield at_most(f"weights changed by a refused {broken}", changed, 0.0)
        yield from states.reported(f"refused {broken}", model, method, ["first"])


def complete(key: str) -> Iterator[Check]:
    method = METHODS[key]
    yield from applied(method)
    yield from merged(method)
    yield from refused(method)


@call(MERGING, phase=Phase.MERGE)
def apply_and_merge_lora(_ctx: Context) -> Iterator[Check]:
    """LoRA adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("lora")


@call(MERGING, phase=Phase.MERGE, requires=("dora",))
def apply_and_merge_dora(_ctx: Context) -> Iterator[Check]:
    """DoRA adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("dora")


@call(MERGING, phase=Phase.MERGE)
def apply_and_merge_adalora(_ctx: Context) -> Iterator[Check]:
    """AdaLoRA adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("adalora")


@call(MERGING, phase=Phase.MERGE)
def apply_and_merge_loha(_ctx: Context) -> Iterator[Check]:
    """LoHa adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("loha")


@call(MERGING, phase=Phase.MERGE)
def apply_and_merge_lokr(_ctx: Context) -> Iterator[Check]:
    """LoKr adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("lokr")


@call(MERGING, phase=Phase.MERGE)
def apply_and_merge_ia3(_ctx: Context) -> Iterator[Check]:
    """(IA)³ adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("ia3")


@call(MERGING, phase=Phase.MERGE, requires=("vera_of_two_sizes",))
def apply_and_merge_vera(_ctx: Context) -> Iterator[Check]:
    """VeRA adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("vera")


@call(MERGING, phase=Phase.MERGE, requires=("peft_HRAConfig",))
def apply_and_merge_hra(_ctx: Context) -> Iterator[Check]:
    """HRA adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("hra")


@call(MERGING, phase=Phase.MERGE, requires=("peft_HRAConfig",))
def apply_and_merge_hra_orthogonal(_ctx: Context) -> Iterator[Check]:
    """HRA adapters with apply_GS apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("hra_orthogonal")


@call(MERGING, phase=Phase.MERGE)
def apply_and_merge_boft(_ctx: Context) -> Iterator[Check]:
    """BOFT adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("boft")


@call(MERGING, phase=Phase.MERGE, requires=("skew_oft",))
def apply_and_merge_oft(_ctx: Context) -> Iterator[Check]:
    """OFT adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("oft")


@call(MERGING, phase=Phase.MERGE, requires=("peft_FourierFTConfig",))
def apply_and_merge_fourierft(_ctx: Context) -> Iterator[Check]:
    """FourierFT adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("fourierft")


@call(MERGING, phase=Phase.MERGE, requires=("peft_VBLoRAConfig",))
def apply_and_merge_vblora(_ctx: Context) -> Iterator[Check]:
    """VB-LoRA adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("vblora")


@call(MERGING, phase=Phase.MERGE, requires=("peft_MissConfig",))
def apply_and_merge_miss(_ctx: Context) -> Iterator[Check]:
    """MiSS adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("miss")


@call(MERGING, phase=Phase.MERGE, requires=("peft_MissConfig",))
def apply_and_merge_miss_mini(_ctx: Context) -> Iterator[Check]:
    """MiSS ("mini") adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("miss_mini")


@call(MERGING, phase=Phase.MERGE, requires=("peft_MissConfig",))
def apply_and_merge_miss_bat(_ctx: Context) -> Iterator[Check]:
    """MiSS ("bat") adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("miss_bat")


@call(MERGING, phase=Phase.MERGE, requires=("peft_BoneConfig",))
def apply_and_merge_bone(_ctx: Context) -> Iterator[Check]:
    """Bone adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("bone")


@call(MERGING, phase=Phase.MERGE, requires=("peft_ShiraConfig",))
def apply_and_merge_shira(_ctx: Context) -> Iterator[Check]:
    """SHiRA adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("shira")


@call(MERGING, phase=Phase.MERGE, requires=("peft_C3AConfig",))
def apply_and_merge_c3a(_ctx: Context) -> Iterator[Check]:
    """C3A adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("c3a")


@call(MERGING, phase=Phase.MERGE, requires=("peft_RoadConfig",))
def apply_and_merge_road(_ctx: Context) -> Iterator[Check]:
    """RoAd adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("road")


@call(MERGING, phase=Phase.MERGE, requires=("peft_DeloraConfig",))
def apply_and_merge_delora(_ctx: Context) -> Iterator[Check]:
    """DeLoRA adapters apply and merge the weights of their formula, and a safe merge refuses NaN."""
    yield from complete("delora")


def square(config: str, times: float, **arguments: Any) -> tuple[Any, Any]:
    """A square layer, and a model of it with two active adapters, whose parts are ``times`` as large as usual."""
    import peft
    import torch

    size = 64
    plain = torch.nn.Sequential(torch.nn.Linear(size, size))
    tiny.fill(plain)
    plain = plain.double()
    configs = [getattr(peft, config)(target_modules=["0"], **arguments) for _ in NAMES]
    model = peft.get_peft_model(copy.deepcopy(plain), configs[0], adapter_name="first")
    model.add_adapter("second", configs[1])
    model.base_model.set_adapter([*NAMES])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(f".{each}" in name for each in NAMES):
                parameter.copy_(times * tiny.values(name, tuple(parameter.shape)))
    return plain, model.eval()


def twice(config: str, times: float, **arguments: Any) -> Iterator[Check]:
    """Compare the outputs of two active adapters before and after they are merged, and with each one's."""
    import torch

    plain, model = square(config, times, **arguments)
    given = tiny.values("inputs", (8, 64)).double()
    with torch.no_grad():
        base, found = plain(given), model(given)
        yield at_least("what both do", relative(found, base), 0.01)
        merged = model.merge_and_unload(adapter_names=[*NAMES])
        yield at_most("outputs off those of the merged layer", relative(found, merged(given)), SAME)


@call(MERGING, phase=Phase.MERGE, requires=("skew_oft",))
def rotate_twice(_ctx: Context) -> Iterator[Check]:
    """Merging two active OFT adapters keeps the outputs.

    Rotations do not commute. The forward pass rotates inputs by the first adapter and then by the second, and merging
    must apply them in this order.
    """
    yield from twice("OFTConfig", 2.0, r=0, oft_block_size=8)


@call(MERGING, phase=Phase.MERGE, requires=("peft_C3AConfig",))
def convolve_twice(_ctx: Context) -> Iterator[Check]:
    """Two active C3A adapters both convolve the input of the layer, as the merged layer does.

    The update of each is a matrix, and the updates of active adapters add up.
    """
    yield from twice("C3AConfig", 32.0, block_size=16)
