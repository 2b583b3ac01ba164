"""LoRA's dropout: where it acts, its rate, and its masks.

The adapters are identities, so that the output of a layer shows the mask on the input of lora_A. The formula is
h = W0 x + s B A dropout(x): https://arxiv.org/abs/2106.09685, section 4.1, and
https://huggingface.co/docs/peft/package_reference/lora
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.dropout import masks
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Dropout"
SIZE, ROWS = 64, 1024
RATE, SCALE = 0.3, 1.5
SAME = 1e-5
ZERO = 1e-3  # what rounding leaves of a difference; kept elements are larger


def layers(count: int = 1) -> Any:
    """Linear layers with diagonal weights and a bias."""
    import torch

    made = torch.nn.Sequential(*(torch.nn.Linear(SIZE, SIZE) for _ in range(count)))
    with torch.no_grad():
        for number, layer in enumerate(made):
            layer.weight.copy_(torch.diag(tiny.values(f"diagonal {number}", (SIZE,)).abs() + 0.5))
            layer.bias.copy_(tiny.values(f"bias {number}", (SIZE,)))
    return made


def adapted(model: Any, adapters: dict[str, tuple[float, float]], **more: Any) -> Any:
    """The layers with an adapter for each pair of a dropout rate and a scale; A and B are identities."""
    import torch
    from peft import LoraConfig, get_peft_model

    wrapped: Any = None
    for name, (rate, scale) in adapters.items():
        config = LoraConfig(
            r=SIZE, lora_alpha=int(scale * SIZE), lora_dropout=rate, target_modules=r"\d+", bias="none", **more
        )
        if wrapped is None:
            wrapped = get_peft_model(model, config, adapter_name=name)
        else:
            wrapped.add_adapter(name, config)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if ".lora_A." in name or ".lora_B." in name:
                parameter.copy_(torch.eye(SIZE))
    return wrapped


def inputs() -> Any:
    import torch

    return 1 + torch.rand(ROWS, SIZE, generator=torch.Generator().manual_seed(0))


def update(model: Any, base: Any, given: Any) -> Any:
    """What the adapters add; zero where the mask is."""
    import torch

    with torch.no_grad():
        added = model(given) - base(given)
    return torch.where(added.abs() < ZERO, torch.zeros_like(added), added)


@call(GROUP, phase=Phase.FORWARD)
def lora_dropout_rate(_ctx: Context) -> Iterator[Check]:
    """In training, lora_dropout zeroes its share of the adapter's inputs, scales the rest, and spares the base path."""
    import torch

    torch.manual_seed(1)
    model = adapted(layers(), {"default": (RATE, SCALE)}).train()
    given = inputs()
    yield from masks.dropped(update(model, layers(), given), SCALE * given, RATE)
    half = SIZE // 2
    with torch.no_grad():
        model.base_model.model[0].lora_A["default"].weight[:half] = torch.eye(half).repeat(1, 2)
    sums = update(model, layers(), given)[:, :half]  # two inputs each: zero only if both are dropped
    off = abs(float((sums == 0).double().mean()) - RATE**2)
    yield at_most("share of sums without an input off", off, masks.bound(sums.numel()))


@call(GROUP, phase=Phase.FORWARD)
def lora_dropout_in_evaluation(_ctx: Context) -> Iterator[Check]:
    """model.eval() turns dropout off, model.train() on, and disable_adapter leaves the mode of the model as it is."""
    import torch

    torch.manual_seed(2)
    model, base, given = adapted(layers(), {"default": (RATE, SCALE)}), layers(), inputs()
    expected = SCALE * given
    yield whole("update off in evaluation", update(model.eval(), base, given), expected)
    yield from masks.dropped(update(model.train(), base, given), expected, RATE, "after train")
    with model.disable_adapter():
        yield equal("adapter's update while disabled", float(update(model, base, given).abs().max()), 0.0)
        model.eval()
    yield whole("update off after eval within disable_adapter", update(model, base, given), expected)
    model.train()
    with model.disable_adapter():
        pass
    yield from masks.dropped(update(model, base, given), expected, RATE, "after disable_adapter")


def whole(name: str, found: Any, expected: Any) -> Check:
    return at_most(name, tolerance.relative(found, expected), SAME)


@call(GROUP, phase=Phase.FORWARD)
def lora_dropout_masks(_ctx: Context) -> Iterator[Check]:
    """Two forward passes and two layers draw independent masks, and the same seed draws the same masks again."""
    import torch

    model, given = adapted(layers(2), {"default": (RATE, SCALE)}).train(), inputs()
    plain = layers(2)

    def drawn() -> tuple[Any, Any]:
        """The updates of both layers in one pass."""
        seen: list[Any] = []
        hooks = [
            model.base_model.model[place].register_forward_hook(
                lambda _, args, out, place=place: seen.append(update(lambda _: out, plain[place], args[0]))
            )
            for place in range(2)
        ]
        with torch.no_grad():
            model(given)
        for hook in hooks:
            hook.remove()
        return seen[0], seen[1]

    torch.manual_seed(3)
    first, second = drawn(), drawn()
    torch.manual_seed(3)
    again = drawn()
    yield masks.differing(first[0], second[0], RATE, "share of differing masks off, two passes")
    yield masks.differing(first[0], first[1], RATE, "share of differing masks off, two layers")
    yield equal("elements that differ with the same seed", sum(int((a != b).sum()) for a, b in zip(first, again)), 0)  # noqa: B905 - two and two


@call(GROUP, phase=Phase.FORWARD)
def adapters_with_own_dropout(_ctx: Context) -> Iterator[Check]:
    """Each of several adapters draws a mask of its own with its own rate, alone and together."""
    import torch

    torch.manual_seed(4)
    chosen = {"one": (0.2, 1.5), "two": (0.6, 4.0)}
    model, base, given = adapted(layers(), chosen).train(), layers(), inputs()
    for name, (rate, scale) in chosen.items():
        model.set_adapter(name)
        yield from masks.dropped(update(model, base, given), scale * given, rate, name)
    model.base_model.set_adapter([*chosen])
    found = update(model, base, given) / given
    sizes = {name: scale / (1 - rate) for name, (rate, scale) in chosen.items()}
    left = torch.ones_like(found, dtype=torch.bool)
    for parts in itertools.product((False, True), repeat=2):
        size = sum(sizes[name] for name, kept in zip(chosen, parts, strict=True) if kept)
        share = 1.0
        for (rate, _), kept in zip(chosen.values(), parts, strict=True):
            share *= 1 - rate if kept else rate
        here = (found - size).abs() <= 1e-4 * max(size, 1.0)  # the sums differ by more than 1
        left &= ~here
        off = abs(float(here.double().mean()) - share)
        yield at_most(f"share of elements with kept {parts} off", off, masks.bound(found.numel()))
    yield equal("elements that no pair of masks explains", int(left.sum()), 0)


@call(GROUP, phase=Phase.FORWARD)
def dora_dropout(_ctx: Context) -> Iterator[Check]:
    """In training, DoRA drops the inputs of all that it adds to the base; in evaluation, nothing.

    It adds (m / norm - 1) W0 x + m / norm s B A x, with the norms of the rows of W0 + s B A
    (https://arxiv.org/abs/2402.09353, eq. 5). With dropout it computes both terms from the dropped inputs, and reuses
    the output of the base layer only in evaluation or without dropout:
    https://huggingface.co/docs/peft/developer_guides/lora#weight-decomposed-low-rank-adaptation-dora
    """
    import torch

    torch.manual_seed(5)
    model = adapted(layers(), {"default": (RATE, SCALE)}, use_dora=True)
    base, given = layers(), inputs()
    magnitude = 3 + tiny.values("magnitude", (SIZE,)).abs()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "magnitude" in name:
                parameter.copy_(magnitude.reshape(parameter.shape))
    diagonal = base[0].weight.detach().diag()
    ratio = magnitude / (diagonal + SCALE)  # the weight and the update are diagonal and positive
    factor = (ratio - 1) * diagonal + ratio * SCALE
    yield at_least("smallest update", float(factor.abs().min()), 0.1)
    yield from masks.dropped(update(model.train(), base, given), factor * given, RATE)
    yield whole("update off in evaluation", update(model.eval(), base, given), factor * given)
