"""Shapes and random starts of adapters by their settings: LoKr's factors, RoAd's rotations, encoders of prompts."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Start values of other adapters"
SIZES = ((192, 320), (256, 36))  # (out, in)
VIRTUAL = 5


def factors(number: int, wanted: int) -> tuple[int, int]:
    """Two factors of a number, the smaller one first: ``wanted`` if it divides, or the largest one up to it.

    -1 looks for factors that are near each other (documentation of ``LoKrConfig.decompose_factor``).
    """
    if wanted > 0 and number % wanted == 0:
        return wanted, number // wanted
    most = math.isqrt(number) if wanted == -1 else min(wanted, math.isqrt(number))
    small = max(each for each in range(1, most + 1) if number % each == 0)
    return small, number // small


def lokr_shapes(out: int, into: int, rank: int, wanted: int, *, both: bool) -> dict[str, tuple[int, ...]]:
    """The tensors of LoKr: a Kronecker product of a smaller matrix and a larger one (https://arxiv.org/abs/2309.14859).

    The larger one, and with ``both`` the smaller one too, is a product of rank r if r is less than half of its longer
    side, as in LyCORIS.
    """
    (tall, taller), (wide, wider) = factors(out, wanted), factors(into, wanted)
    found: dict[str, tuple[int, ...]] = {}
    for name, rows, columns, split in (("w1", tall, wide, both), ("w2", taller, wider, True)):
        if split and rank < max(rows, columns) / 2:
            found |= {f"{name}_a": (rows, rank), f"{name}_b": (rank, columns)}
        else:
            found[name] = (rows, columns)
    return found


@call(GROUP, phase=Phase.ADAPT)
def lokr_factors(_ctx: Context) -> Iterator[Check]:
    """LoKr splits the sides of a layer by decompose_factor, and the factors that are longer than 2 r into products.

    Its first factor starts at zero and all others Kaiming-uniform; with init_weights=False, all of them.
    """
    import peft
    import torch

    for (out, into), rank, wanted, both in product(SIZES, (4, 10, 40), (-1, 8), (False, True)):
        for starts in (True, False) if rank == 10 else (True,):  # noqa: PLR2004 - one of the three
            base = torch.nn.Sequential(torch.nn.Linear(into, out, bias=False))
            settings = {"decompose_factor": wanted, "decompose_both": both, "init_weights": starts}
            torch.manual_seed(7)
            model = peft.get_peft_model(base, peft.LoKrConfig(target_modules=["0"], r=rank, **settings))
            found = {name.split("lokr_")[1].split(".")[0]: p for name, p in model.named_parameters() if "lokr_" in name}
            shapes = {name: tuple(each.shape) for name, each in found.items()}
            title = f"{out} x {into}, r={rank}, {wanted}, {both}, {starts}"
            shaped = lokr_shapes(out, into, rank, wanted, both=both)
            yield equal(f"shapes, {title}", str(sorted(shapes.items())), str(sorted(shaped.items())))
            zero = sorted(name for name, each in found.items() if not each.any())
            first = ["w1"] if "w1" in found else ["w1_a"]
            yield equal(f"tensors that are zero, {title}", str(zero), str(first if starts else []))
            off = [name for name, each in found.items() if name not in zero and not within_range(each)]
            yield equal(f"tensors outside of their range, {title}", str(off), "[]")


def within_range(tensor: Any) -> bool:
    """Whether a tensor fills the range of Kaiming's start with a = sqrt(5): 1 / sqrt(columns).

    Of 20 numbers or more, all are in the inner half with a probability of at most 1e-6.
    """
    largest = float(tensor.detach().abs().max() * tensor.shape[1] ** 0.5)
    return (0.5 if tensor.numel() >= 20 else 0.0) < largest <= 1.0  # noqa: PLR2004 - see above


@call(GROUP, phase=Phase.ADAPT, requires=("peft_RoadConfig",))
def road_random_start(_ctx: Context) -> Iterator[Check]:
    """RoAd starts without rotation and scale 1; with init_weights=False, with normal ones around 0 and 1.

    The standard deviation is a half, for each variant; two seeds draw different numbers.
    """
    import peft
    import torch

    for variant, numbers in (("road_1", 600), ("road_2", 1200), ("road_4", 2400)):
        for seed, starts in ((1, False), (2, False), (1, True)):
            base = torch.nn.Sequential(torch.nn.Linear(8, 1200))
            config = peft.RoadConfig(target_modules=["0"], variant=variant, init_weights=starts, group_size=8)
            torch.manual_seed(seed)
            model = peft.get_peft_model(base, config)
            layer = model.base_model.model[0]
            found = {kind: getattr(layer, f"road_{kind}")["default"].detach() for kind in ("theta", "alpha")}
            yield equal(f"numbers, {variant}", found["theta"].numel(), numbers)
            if starts:
                plain = bool((found["theta"] == 0).all() and (found["alpha"] == 1).all())
                yield equal(f"no rotation and scale 1, {variant}", plain, bound=True)
                continue
            for kind, mean in (("theta", 0.0), ("alpha", 1.0)):
                samples = (found[kind] - mean) / 0.5
                title = f"{kind} of {variant}, seed {seed}"
                yield from adapted_layers.distributed(title, samples, adapted_layers.normal())


@call(GROUP, phase=Phase.ADAPT)
def prompt_encoder_sizes(ctx: Context) -> Iterator[Check]:
    """Encoders of prompts take the sizes that are not given from the model: layers, heads, and widths.

    An encoder without encoder_hidden_size has the width of its tokens. The saved configuration states all sizes.
    """
    import peft

    model = ingredients.base(ctx).config
    heads = model.num_key_value_heads
    width = model.hidden_size
    prefix = width // model.num_attention_heads * heads
    settings: dict[str, tuple[dict[str, Any], int, list[tuple[int, ...]]]] = {
        "PromptTuningConfig": ({}, width, [(VIRTUAL, width)]),
        "PromptEncoderConfig": ({}, width, [(VIRTUAL, width), *[(width, width)] * 3]),
        "PromptEncoderConfig, 24": (
            {"encoder_hidden_size": 24},
            width,
            [(VIRTUAL, width), (24, width), (24, 24), (width, 24)],
        ),
        "PrefixTuningConfig": ({}, prefix, [(VIRTUAL, tiny.LAYERS * 2 * prefix)]),
        "PrefixTuningConfig, projection": (
            {"prefix_projection": True},
            prefix,
            [(VIRTUAL, prefix), (prefix, prefix), (tiny.LAYERS * 2 * prefix, prefix)],
        ),
        "PrefixTuningConfig, projection of 24": (
            {"prefix_projection": True, "encoder_hidden_size": 24},
            prefix,
            [(VIRTUAL, prefix), (24, prefix), (tiny.LAYERS * 2 * prefix, 24)],
        ),
    }
    for title, (more, token, shapes) in settings.items():
        given = getattr(peft, title.split(",")[0])(task_type="CAUSAL_LM", num_virtual_tokens=VIRTUAL, **more)
        adapted = peft.get_peft_model(ingredients.base(ctx), given)
        found = [tuple(each.shape) for each in adapted.prompt_encoder["default"].parameters() if each.dim() > 1]
        yield equal(f"shapes of weights, {title}", str(found), str(shapes))
        folder = ctx.kept / title.replace(" ", "-")
        adapted.save_pretrained(folder)
        read = peft.PeftConfig.from_pretrained(folder)
        stated = (read.num_layers, read.token_dim, read.num_virtual_tokens)
        yield equal(f"sizes that are saved, {title}", str(stated), str((tiny.LAYERS, token, VIRTUAL)))
        if "Encoder" in title or "projection" in title:
            wide = more.get("encoder_hidden_size", token)
            yield equal(f"width that is saved, {title}", read.encoder_hidden_size, wide)
        again = peft.PeftModel.from_pretrained(ingredients.base(ctx), folder)
        difference = ingredients.largest_difference(ingredients.logits(adapted, ctx), ingredients.logits(again, ctx))
        yield equal(f"logits off after loading, {title}", difference, 0.0)
