"""Dropout of methods other than LoRA: what is dropped and how often in training, and nothing in evaluation and merging.

The fields' documentation (https://huggingface.co/docs/peft/package_reference/adapter_utils and the page of each method)
names the part: an output row of the update, the whole update, single inputs, or blocks of a rotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS
from cases.behaviour.adapters.methods.method_merging import SAME
from cases.behaviour.dropout import masks
from cases.behaviour.starts import adapted_layers
from cases.reference.tolerance import relative
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

DROPPING = "Dropout of other methods"
RATE = 0.375  # an exact share of the blocks below
ZERO = 1e-5  # what rounding leaves of a difference
LAYER = "tall"
FIRST = ("first",)


def dropping(key: str, **dropout: float | bool) -> tuple[Any, Any, Any]:
    """A model with an adapter with dropout, what the adapter adds to a layer's weight, and the weight of the base."""
    import torch

    method = METHODS[key]
    model = layers.adapted(method, names=FIRST, **dropout)
    whole = layers.expected(model, method, "first")[LAYER][0]
    plain = layers.held(adapted_layers.base())[LAYER][0]
    torch.manual_seed(7)
    return model, whole - plain, plain


def quiet(key: str, **dropout: float | bool) -> Iterator[Check]:
    """In evaluation nothing is dropped, and merging uses the whole update in training too."""
    method = METHODS[key]
    model = layers.adapted(method, names=FIRST, **dropout)
    wanted = layers.expected(model, method, "first")
    yield at_most("weights off in evaluation", layers.off(layers.applied(model), wanted), SAME)
    model.train().merge_adapter()
    yield at_most("weights off, merged in training", layers.off(layers.held(model), wanted), SAME)
    yield at_most("merged weights off in training", layers.off(layers.applied(model), wanted), SAME)
    model.unmerge_adapter()
    plain = layers.held(adapted_layers.base())
    yield at_most("weights off, unmerged in training", layers.off(layers.held(model), plain), SAME)


def rows_dropped(key: str, *, scaled: bool, **dropout: float | bool) -> Iterator[Check]:
    """Rank dropout zeroes output rows of the update; if it scales the others, then so that their mean stays."""
    yield from quiet(key, **dropout)
    model, update, plain = dropping(key, **dropout)
    gone, worst, passes = 0.0, 0.0, 24
    for _ in range(passes):
        found = layers.applied(model.train())[LAYER][0] - plain
        kept = found.abs().amax(1) > ZERO
        factor = len(kept) / int(kept.sum()) if scaled else 1.0
        worst = max(worst, relative(found[kept], factor * update[kept]))
        gone += float((~kept).double().mean()) / passes
    yield at_most("share of dropped rows off", abs(gone - RATE), masks.bound(passes * len(update)))
    yield at_most("kept rows off", worst, 1e-4)


def modules_dropped(key: str, **dropout: float | bool) -> Iterator[Check]:
    """Module dropout leaves out the whole update of a layer, and adds it unscaled otherwise."""
    import torch

    yield from quiet(key, **dropout)
    model, update, plain = dropping(key, **dropout)
    given, passes = torch.eye(update.shape[1])[:4], 400
    layer = layers.module(model.train(), LAYER)
    bias = layers.held(adapted_layers.base())[LAYER][1]
    gone, worst = 0, 0.0
    for _ in range(passes):
        with torch.no_grad():
            found = (layer(given).double() - bias).T - plain[:, :4]
        if float(found.abs().max()) < ZERO:
            gone += 1
        else:
            worst = max(worst, relative(found, update[:, :4]))
    yield at_most("share of dropped updates off", abs(gone / passes - RATE), masks.bound(passes))
    yield at_most("kept updates off", worst, 1e-4)


def inputs_dropped(key: str, **dropout: float | bool) -> Iterator[Check]:
    """Dropout zeroes single inputs of the adapter, scales the others by 1 / (1 - p), and spares the base.

    Every row of the inputs has one number that is not zero, so that each output shows what happened to it.
    """
    import torch

    yield from quiet(key, **dropout)
    model, update, plain = dropping(key, **dropout)
    size, passes = update.shape[1], 64
    given = torch.eye(size).repeat(passes, 1)
    with torch.no_grad():
        out = layers.module(model.train(), LAYER)(given).double() - layers.held(adapted_layers.base())[LAYER][1]
    added = out.view(passes, size, -1) - plain.T
    share = (added * update.T).sum(-1) / update.T.square().sum(-1)  # (passes, inputs): 0 or 1 / (1 - p)
    share = share.where(share.abs() > 100 * ZERO, torch.zeros_like(share))
    yield at_most("outputs off the scaled update", relative(added, share[..., None] * update.T), 1e-4)
    yield from masks.dropped(share.float(), torch.ones_like(share).float(), RATE)


def blocks_dropped(key: str, blocks: int, **dropout: float | bool) -> Iterator[Check]:
    """Multiplicative dropout leaves a share of the blocks of a rotation out: the floor of p times their number."""
    import torch

    yield from quiet(key, **dropout)
    model, update, plain = dropping(key, **dropout)
    scale = layers.parts(model, METHODS[key], LAYER, "first").get("boft_s", torch.ones(1, dtype=torch.float64))
    rotated, still = (update + plain).chunk(blocks, 1), (scale * plain).chunk(blocks, 1)
    seen: set[tuple[int, ...]] = set()
    worst, counts = 0.0, set()
    for _ in range(8):
        found = layers.applied(model.train())[LAYER][0].chunk(blocks, 1)
        left = tuple(n for n in range(blocks) if relative(found[n], still[n]) < ZERO)
        others = [relative(found[n], rotated[n]) for n in range(blocks) if n not in left]
        worst = max(worst, *others)
        counts.add(len(left))
        seen.add(left)
    yield equal("blocks left out of each pass", " ".join(map(str, sorted(counts))), str(int(RATE * blocks)))
    yield equal("passes leave out different blocks", len(seen) > 1, bound=True)
    yield at_most("rotated blocks off", worst, 1e-4)


@call(DROPPING, phase=Phase.FORWARD)
def loha_rank_dropout(_ctx: Context) -> Iterator[Check]:
    """LoHa's rank_dropout zeroes output rows of the update in training, and only there."""
    yield from rows_dropped("loha", scaled=True, rank_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD)
def lokr_rank_dropout(_ctx: Context) -> Iterator[Check]:
    """LoKr's rank_dropout zeroes output rows of the update in training, and does not scale the others."""
    yield from rows_dropped("lokr", scaled=False, rank_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD)
def lokr_scaled_rank_dropout(_ctx: Context) -> Iterator[Check]:
    """LoKr's rank_dropout_scale scales the rows that are kept."""
    yield from rows_dropped("lokr", scaled=True, rank_dropout=RATE, rank_dropout_scale=True)


@call(DROPPING, phase=Phase.FORWARD)
def loha_module_dropout(_ctx: Context) -> Iterator[Check]:
    """LoHa's module_dropout leaves out a layer's update in training, and only there."""
    yield from modules_dropped("loha", module_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD)
def lokr_module_dropout(_ctx: Context) -> Iterator[Check]:
    """LoKr's module_dropout leaves out a layer's update in training, and only there."""
    yield from modules_dropped("lokr", module_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD)
def adalora_dropout(_ctx: Context) -> Iterator[Check]:
    """AdaLoRA's lora_dropout drops inputs of the adapter in training, and only there."""
    yield from inputs_dropped("adalora", lora_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD, requires=("vera_of_two_sizes",))
def vera_dropout(_ctx: Context) -> Iterator[Check]:
    """VeRA's vera_dropout drops inputs of the adapter in training, and only there."""
    yield from inputs_dropped("vera", vera_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD, requires=("peft_VBLoRAConfig",))
def vblora_dropout(_ctx: Context) -> Iterator[Check]:
    """VB-LoRA's vblora_dropout drops inputs of the adapter in training, and only there."""
    yield from inputs_dropped("vblora", vblora_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD, requires=("peft_MissConfig",))
def miss_dropout(_ctx: Context) -> Iterator[Check]:
    """MiSS's miss_dropout drops inputs of the adapter in training, and only there."""
    yield from inputs_dropped("miss", miss_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD, requires=("peft_MissConfig",))
def miss_mini_dropout(_ctx: Context) -> Iterator[Check]:
    """MiSS's miss_dropout drops inputs of the adapter with init_weights="mini" too."""
    yield from inputs_dropped("miss_mini", miss_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD, requires=("peft_MissConfig",))
def miss_bat_dropout(_ctx: Context) -> Iterator[Check]:
    """MiSS's miss_dropout drops something in training with init_weights="bat" too."""
    model, update, plain = dropping("miss_bat", miss_dropout=RATE)
    found = layers.applied(model.train())[LAYER][0]
    yield equal("the update is whole in training", relative(found, update + plain) < SAME, bound=False)


@call(DROPPING, phase=Phase.FORWARD)
def boft_block_dropout(_ctx: Context) -> Iterator[Check]:
    """BOFT's boft_dropout leaves blocks out of the rotation in training, and only there."""
    yield from blocks_dropped("boft", adapted_layers.SIZES[LAYER][1] // 8, boft_dropout=RATE)


@call(DROPPING, phase=Phase.FORWARD, requires=("skew_oft",))
def oft_block_dropout(_ctx: Context) -> Iterator[Check]:
    """OFT's module_dropout leaves blocks out of the rotation in training, and only there."""
    yield from blocks_dropped("oft", adapted_layers.SIZES[LAYER][1] // 8, module_dropout=RATE)
