"""Methods on convolutions: the kernel that a layer applies and merges, by the formula of each paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods.method_merging import MERGING, SAME
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative, worst
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Formula = Callable[[Any, dict[str, Any], float], Any]

RANK, ALPHA = 2, 6
IN, OUT = 32, 48
TARGETS = ("image", "point")
GRADIENTS = 1e-5  # relative: a pass back through products in float32


def base() -> Any:
    """A convolution with a kernel that is no square, stride and padding, and one of single points."""
    import torch

    made = torch.nn.Sequential()
    made.add_module("image", torch.nn.Conv2d(IN, OUT, (3, 2), stride=2, padding=1))
    made.add_module("point", torch.nn.Conv2d(IN, OUT, 1))
    tiny.fill(made)
    return made.eval()


def rebuilt(core: Any, left: Any, right: Any) -> Any:
    """A kernel from its Tucker decomposition: (out, in, height, width)."""
    import torch

    return torch.einsum("ijkl,ip,jq->pqkl", core, left, right)


def loha(kernel: Any, parts: dict[str, Any], scaling: float) -> Any:
    """W + s (A1 B1) * (A2 B2), with decomposed kernels or flat ones (https://arxiv.org/abs/2108.06098)."""
    sides = []
    for side in "12":
        left, right = parts[f"hada_w{side}_a"], parts[f"hada_w{side}_b"]
        sides.append(rebuilt(parts[f"hada_t{side}"], left, right) if f"hada_t{side}" in parts else left @ right)
    return kernel + scaling * (sides[0] * sides[1]).reshape(kernel.shape)


def lokr(kernel: Any, parts: dict[str, Any], scaling: float) -> Any:
    """W + s (C kron D), where D has the places of the kernel (https://arxiv.org/abs/2309.14859)."""
    import torch

    first = parts["lokr_w1"] if "lokr_w1" in parts else parts["lokr_w1_a"] @ parts["lokr_w1_b"]
    if "lokr_w2" in parts:
        second = parts["lokr_w2"]
    elif "lokr_t2" in parts:
        second = rebuilt(parts["lokr_t2"], parts["lokr_w2_a"], parts["lokr_w2_b"])
    else:
        second = (parts["lokr_w2_a"] @ parts["lokr_w2_b"]).reshape(len(parts["lokr_w2_a"]), -1, *kernel.shape[2:])
    return kernel + scaling * torch.kron(first[:, :, None, None].contiguous(), second.contiguous())


def ia3(kernel: Any, parts: dict[str, Any], _scaling: float) -> Any:
    """The kernel times a vector of outputs or of inputs (https://arxiv.org/abs/2205.05638)."""
    vector = parts["ia3_l"]
    return kernel * (vector.reshape(-1, 1, 1, 1) if vector.numel() == len(kernel) else vector.reshape(1, -1, 1, 1))


def lora(kernel: Any, parts: dict[str, Any], scaling: float) -> Any:
    """A convolution to r channels, and one of single points back: W + s B A (https://arxiv.org/abs/2106.09685)."""
    added = parts["lora_B"].flatten(1) @ parts["lora_A"].flatten(1)
    return kernel + scaling * added.reshape(kernel.shape)


METHODS: Mapping[str, tuple[str, dict[str, Any], tuple[str, ...], Formula]] = {
    "LoHa": ("LoHaConfig", {"r": RANK, "alpha": ALPHA}, ("hada_",), loha),
    "LoHa, decomposed": ("LoHaConfig", {"r": RANK, "alpha": ALPHA, "use_effective_conv2d": True}, ("hada_",), loha),
    "LoKr": ("LoKrConfig", {"r": RANK, "alpha": ALPHA}, ("lokr_",), lokr),
    "LoKr, decomposed": ("LoKrConfig", {"r": RANK, "alpha": ALPHA, "use_effective_conv2d": True}, ("lokr_",), lokr),
    "LoKr, both": ("LoKrConfig", {"r": RANK, "alpha": ALPHA, "decompose_both": True}, ("lokr_",), lokr),
    "LoKr, whole": ("LoKrConfig", {"r": 12, "alpha": ALPHA}, ("lokr_",), lokr),
    "LoRA": ("LoraConfig", {"r": RANK, "lora_alpha": ALPHA}, ("lora_",), lora),
    "(IA)³": ("IA3Config", {"feedforward_modules": ["point"]}, ("ia3_l",), ia3),
}


def fill(model: Any, marks: tuple[str, ...]) -> None:
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(mark in name for mark in marks):
                around = 1.25 if "ia3" in name else 0.0
                parameter.copy_(4 * tiny.values(tiny.canonical(name), tuple(parameter.shape)) + around)


def trained(model: Any, name: str, marks: tuple[str, ...]) -> dict[str, Any]:
    """The parts of a layer's adapter by their names in PEFT."""
    found = adapted_layers.layer(model, name).named_parameters()
    return {key.split(".")[0]: p for key, p in found if any(mark in key for mark in marks)}


def convolved(layer: Any, inputs: Any, kernel: Any) -> Any:
    from torch.nn import functional

    bias = layer.bias.detach().double()
    return functional.conv2d(inputs, kernel, bias, stride=layer.stride, padding=layer.padding)


def gradients(title: str, found: Any, expected: Any, parts: tuple[dict[str, Any], dict[str, Any]]) -> Check:
    """Compare the gradients of the parts for the sum of squares of the outputs."""
    held, pieces = parts
    found.square().sum().backward()
    expected.square().sum().backward()
    off = worst(relative(held[part].grad, pieces[part].grad) for part in held)
    return at_most(f"gradients off, {title}", off, GRADIENTS)


def story(key: str) -> Iterator[Check]:
    import peft
    import torch

    kind, settings, marks, formula = METHODS[key]
    model = peft.get_peft_model(base(), getattr(peft, kind)(target_modules=[*TARGETS], **settings))
    fill(model, marks)
    plain = base()
    wanted = {}
    scaling = ALPHA / settings.get("r", 1)
    for name in TARGETS:
        layer, held = adapted_layers.layer(model, name), trained(model, name, marks)
        pieces = {part: each.detach().double().requires_grad_() for part, each in held.items()}
        kernel = formula(plain.get_submodule(name).weight.detach().double(), pieces, scaling)
        inputs = 4 * tiny.values(f"image of {name}", (2, IN, 5, 7))
        expected = convolved(plain.get_submodule(name), inputs.double(), kernel)
        if key == "(IA)³" and name == "image":  # multiplies outputs, with what the bias adds
            expected = expected + (pieces["ia3_l"].reshape(1, -1, 1, 1) - 1) * plain.image.bias.double().reshape(
                1, -1, 1, 1
            )
        for training in (True, False):
            found = layer.train(training)(inputs)
            yield at_most(f"outputs off, {key}, {name}, training={training}", relative(found, expected), SAME)
        if key != "LoHa, decomposed":  # see decomposed_loha_gradients
            yield gradients(f"{key}, {name}", found, expected, (held, pieces))
        before = plain.get_submodule(name).weight.detach().double()
        yield at_least(f"what the adapter does, {key}, {name}", relative(kernel.detach(), before), 0.01)
        wanted[name] = kernel.detach()
    for safe in (False, True):
        for name in TARGETS:
            layer = adapted_layers.layer(model, name)
            layer.merge(safe_merge=safe)
            off = relative(layer.get_base_layer().weight.detach(), wanted[name])
            yield at_most(f"merged kernel off, {key}, {name}, safe={safe}", off, SAME)
        model.unmerge_adapter()
        for name in TARGETS:
            held_kernel = adapted_layers.layer(model, name).get_base_layer().weight.detach()
            off = relative(held_kernel, plain.get_submodule(name).weight.detach())
            yield at_most(f"unmerged kernel off, {key}, {name}, safe={safe}", off, SAME)
    merged = model.merge_and_unload()
    kinds = all(type(merged.get_submodule(name)) is torch.nn.Conv2d for name in TARGETS)
    yield at_least(f"unloaded layers are convolutions, {key}", float(kinds), 1.0)


@call(MERGING, phase=Phase.MERGE)
def loha_on_convolutions(_ctx: Context) -> Iterator[Check]:
    """LoHa on convolutions adds the product of two flat or decomposed kernels, also merged; so do its gradients."""
    for key in METHODS:
        if key.startswith("LoHa"):
            yield from story(key)


@call(MERGING, phase=Phase.BACKWARD)
def decomposed_loha_gradients(_ctx: Context) -> Iterator[Check]:
    """LoHa with use_effective_conv2d trains a kernel's parts by the gradients of its formula.

    PEFT's own backward pass gives hada_w1_a and hada_w2_a gradients of the other product.
    """
    import peft

    kind, settings, marks, formula = METHODS["LoHa, decomposed"]
    model = peft.get_peft_model(base(), getattr(peft, kind)(target_modules=["image"], **settings)).train()
    fill(model, marks)
    held = trained(model, "image", marks)
    pieces = {part: each.detach().double().requires_grad_() for part, each in held.items()}
    plain = base().image
    inputs = 4 * tiny.values("image of image", (2, IN, 5, 7))
    kernel = formula(plain.weight.detach().double(), pieces, ALPHA / RANK)
    found, expected = adapted_layers.layer(model, "image")(inputs), convolved(plain, inputs.double(), kernel)
    yield gradients("LoHa, decomposed", found, expected, (held, pieces))


@call(MERGING, phase=Phase.MERGE)
def lokr_on_convolutions(_ctx: Context) -> Iterator[Check]:
    """LoKr on convolutions adds a Kronecker product over channels, however its factors are decomposed, also merged."""
    for key in METHODS:
        if key.startswith("LoKr"):
            yield from story(key)


FACTORS = {16: (4, 4), 128: (8, 16)}  # the pair nearest to a square, by channels


@call(MERGING, phase=Phase.ADAPT)
def lokr_factors_of_convolutions(_ctx: Context) -> Iterator[Check]:
    """LoKr keeps its second factor whole from a rank of half its larger side on, for few channels and for many.

    It has the places of the kernel, and the larger of each two divisors of the channels. The first factor is whole.
    """
    import peft
    import torch

    for into, out in ((128, 16), (16, 128), (128, 128)):
        for rank in (3, 5, 8):
            plain = torch.nn.Sequential()
            plain.add_module("image", torch.nn.Conv2d(into, out, (3, 2)))
            tiny.fill(plain)
            kernel, inputs = plain.image.weight.detach().double(), 4 * tiny.values("image", (2, into, 5, 4))
            model = peft.get_peft_model(plain, peft.LoKrConfig(r=rank, alpha=ALPHA, target_modules=["image"])).eval()
            fill(model, ("lokr_",))
            pieces = {part: each.detach() for part, each in trained(model, "image", ("lokr_",)).items()}
            larger = FACTORS[out][1], FACTORS[into][1]
            whole = {"lokr_w2": (*larger, 3, 2)}
            parts = {"lokr_w2_a": (larger[0], rank), "lokr_w2_b": (rank, larger[1] * 3 * 2)}
            wanted = {"lokr_w1": (FACTORS[out][0], FACTORS[into][0]), **(whole if 2 * rank >= max(larger) else parts)}
            title = f"{into} to {out} channels, rank {rank}"
            shapes = {part: tuple(each.shape) for part, each in sorted(pieces.items())}
            yield equal(f"factors, {title}", str(shapes), str(wanted))
            added = lokr(kernel, {part: each.double() for part, each in pieces.items()}, ALPHA / rank)
            layer = adapted_layers.layer(model, "image")
            off = float("inf")
            if added.shape == kernel.shape:
                off = relative(layer(inputs).detach(), convolved(layer.get_base_layer(), inputs.double(), added))
            yield at_most(f"outputs off, {title}", off, SAME)


@call(MERGING, phase=Phase.MERGE)
def vectors_on_convolutions(_ctx: Context) -> Iterator[Check]:
    """(IA)³ multiplies the outputs of a convolution, or the inputs of feed-forward ones, by a vector, also merged."""
    yield from story("(IA)³")


@call(MERGING, phase=Phase.BACKWARD)
def lora_gradients_on_convolutions(_ctx: Context) -> Iterator[Check]:
    """LoRA on convolutions gives A and B the gradients of s B A over channels, in training and in evaluation."""
    yield from story("LoRA")
