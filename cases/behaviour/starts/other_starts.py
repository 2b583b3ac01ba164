"""Other adapters as PEFT starts them: VeRA, AdaLoRA, LoHa, LoKr, (IA)^3, orthogonal ones, FourierFT, MiSS."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SAME, SIZES, TARGETS
from cases.model import disk
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Start values of other adapters"
KEY, D_START = 7, 0.375  # VeRA's projection_prng_key and d_initial; the latter is exact in float32
LARGEST = tuple(max(sizes) for sizes in zip(*SIZES.values(), strict=True))  # (out, in) of VeRA's projections
BLOCK = 8  # of orthogonal adapters


def config(name: str, **arguments: Any) -> Any:
    import peft

    return getattr(peft, name)(target_modules=list(TARGETS), **arguments)


def vera(**other: Any) -> Any:
    return config("VeraConfig", **{"r": RANK, "projection_prng_key": KEY, "d_initial": D_START, **other})


def projections(model: Any) -> tuple[Any, Any]:
    """VeRA's frozen matrices A (r, largest in) and B (largest out, r): float64."""
    a, b = (getattr(model.base_model, f"vera_{side}")["default"].double() for side in "AB")
    return a, b


@call(GROUP, phase=Phase.ADAPT, requires=("vera_of_two_sizes",))
def vera_start(ctx: Context) -> Iterator[Check]:
    """VeRA starts with b at zero and d at d_initial, and trains these vectors alone.

    https://arxiv.org/abs/2310.11454, section 3: b is zero, d a constant, A and B are frozen and Kaiming-initialised,
    which is uniform within sqrt(6 / fan in) (https://arxiv.org/abs/1502.01852).
    """
    del ctx
    original = adapted_layers.base()
    model = adapted_layers.adapted(original, vera())
    others = sum(int((adapted_layers.parts(model, name, "vera_lambda_b") != 0).sum()) for name in TARGETS)
    yield equal("numbers of b that are not zero", others, 0)
    others = sum(int((adapted_layers.parts(model, name, "vera_lambda_d") != D_START).sum()) for name in TARGETS)
    yield equal("numbers of d that are not d_initial", others, 0)
    yield adapted_layers.unchanged(model, original)
    numbers = sum(out + RANK for out, _ in SIZES.values())
    yield from adapted_layers.trained(model, ("vera_lambda_b", "vera_lambda_d"), numbers)
    a, b = projections(model)
    yield equal("shapes of A and B", f"{tuple(a.shape)} {tuple(b.shape)}", f"{(RANK, LARGEST[1])} {(LARGEST[0], RANK)}")
    for name, matrix in (("A", a), ("B", b)):
        inside = matrix * math.sqrt(matrix.shape[1] / 6)
        yield from adapted_layers.distributed(f"projection {name}", inside, adapted_layers.uniform())


@call(GROUP, phase=Phase.FORWARD, requires=("vera_of_two_sizes",))
def vera_shared_projections(ctx: Context) -> Iterator[Check]:
    """Every VeRA layer adds diag(b) B diag(d) A with its part of the same A and B, which only the key determines."""
    del ctx
    original = adapted_layers.base()
    model = adapted_layers.fill(adapted_layers.adapted(original, vera(), seed=0))
    yield adapted_layers.weights_as(adapted_layers.applied(model), with_vera(original, model, *projections(model)))
    again = projections(adapted_layers.adapted(original, vera(), seed=1))
    other = projections(adapted_layers.adapted(original, vera(projection_prng_key=KEY + 1), seed=0))
    for side, one, same, different in zip("AB", projections(model), again, other, strict=True):
        yield equal(f"numbers of {side} that differ with the same key", int((one != same).sum()), 0)
        yield equal(f"numbers of {side} that agree with another key", int((one == different).sum()), 0)


def with_vera(original: Any, model: Any, a: Any, b: Any) -> dict[str, Any]:
    """The weights by equation 2 of the paper; a layer uses the first columns of A and the first rows of B."""
    expected = {}
    for name, weight in adapted_layers.originals(original).items():
        of_b, of_d = (adapted_layers.parts(model, name, f"vera_lambda_{side}") for side in "bd")
        out, into = SIZES[name]
        expected[name] = weight + (of_b[:, None] * b[:out]) @ (of_d[:, None] * a[:, :into])
    return expected


def reloaded(ctx: Context, *, save_projection: bool) -> tuple[Any, Any, Path]:
    """A VeRA model and its reloaded copy.

    Saved projections are changed first, as another machine's generator would: then only the file has them.
    """
    import torch
    from peft import PeftModel

    model = adapted_layers.fill(adapted_layers.adapted(adapted_layers.base(), vera(save_projection=save_projection)))
    if save_projection:
        model.base_model.vera_A["default"].mul_(3)
    torch.manual_seed(1)
    folder = ctx.kept / f"vera-{save_projection}"
    model.save_pretrained(folder)
    return model, PeftModel.from_pretrained(adapted_layers.base(), folder).eval(), folder


@call(GROUP, phase=Phase.RELOAD, requires=("vera_of_two_sizes",))
def vera_save_projection(ctx: Context) -> Iterator[Check]:
    """VeRA's file holds A and B by default and lacks them with save_projection=False; both give the same weights."""
    for save_projection in (True, False):
        model, again, folder = reloaded(ctx, save_projection=save_projection)
        names = [name for name, _ in disk.read_file(folder / "adapter_model.safetensors")]
        found = sum(name.endswith(("vera_A", "vera_B")) for name in names)
        yield equal(f"projections in the file, save_projection={save_projection}", found, 2 * save_projection)
        yield adapted_layers.weights_as(adapted_layers.applied(again), adapted_layers.applied(model), 0.0)


@call(GROUP, phase=Phase.ADAPT)
def adalora_start(ctx: Context) -> Iterator[Check]:
    """AdaLoRA starts with its singular values at zero, so the adapted model equals its base in every bit.

    https://arxiv.org/abs/2303.10512, section 3.1: the singular values are zero, both other factors random Gaussian.
    """
    del ctx
    original = adapted_layers.base()
    steps = {"init_r": RANK, "target_r": RANK // 2, "tinit": 1, "tfinal": 1, "total_step": 10}
    model = adapted_layers.adapted(original, config("AdaLoraConfig", lora_alpha=ALPHA, **steps))
    others = sum(int((adapted_layers.parts(model, name, "lora_E") != 0).sum()) for name in TARGETS)
    yield equal("singular values that are not zero", others, 0)
    for part in ("lora_A", "lora_B"):
        left = sum(int((adapted_layers.parts(model, name, part) == 0).sum()) for name in TARGETS)
        yield equal(f"numbers of {part} that are zero", left, 0)
    yield adapted_layers.unchanged(model, original)
    numbers = RANK * sum(out + into + 1 for out, into in SIZES.values())
    yield from adapted_layers.trained(model, ("lora_A", "lora_B", "lora_E"), numbers)


def neutral(name: str, marks: tuple[str, ...], numbers: int, within: float = 0.0, **arguments: Any) -> Iterator[Check]:
    """Check that an adapter starts with no effect and trains as many numbers as its formula says."""
    original = adapted_layers.base()
    model = adapted_layers.adapted(original, config(name, **arguments))
    yield adapted_layers.unchanged(model, original, within)
    yield from adapted_layers.trained(model, marks, numbers)
    before = adapted_layers.applied(model)
    found = adapted_layers.applied(adapted_layers.fill(model))
    yield equal("layers that the filled adapter changes", sum(bool((found[n] != before[n]).any()) for n in before), 2)


@call(GROUP, phase=Phase.ADAPT)
def loha_start(ctx: Context) -> Iterator[Check]:
    """LoHa starts with no effect and trains two pairs of low-rank matrices (https://arxiv.org/abs/2108.06098)."""
    del ctx
    numbers = 2 * RANK * sum(out + into for out, into in SIZES.values())
    yield from neutral("LoHaConfig", ("hada_w1_", "hada_w2_"), numbers, r=RANK, alpha=ALPHA)


@call(GROUP, phase=Phase.ADAPT)
def lokr_start(ctx: Context) -> Iterator[Check]:
    """LoKr starts with no effect and trains a small and a low-rank Kronecker factor (https://arxiv.org/abs/2309.14859).

    A dimension's factors are the two closest ones, the smaller first: 96 = 8 * 12, 160 = 10 * 16, 224 = 14 * 16.
    """
    del ctx
    rank = 3
    numbers = (8 * 10 + rank * (12 + 16)) + (14 * 8 + rank * (16 + 12))
    yield from neutral("LoKrConfig", ("lokr_w1", "lokr_w2_"), numbers, r=rank, alpha=ALPHA)


@call(GROUP, phase=Phase.ADAPT)
def lokr_decomposed_start(ctx: Context) -> Iterator[Check]:
    """LoKr's decompose_both decomposes the small factor too, if its rank is below half of its larger dimension.

    The second factor is decomposed by the same rule. With decompose_factor 8, the first factors are 8 * 8 for both
    layers, and the second ones are 12 * 20 and 28 * 12; a decomposed factor a * b has rank * (a + b) numbers.
    """
    del ctx
    whole, small = 2 * 8 * 8, 2 * (8 + 8)
    for rank, numbers in ((3, 3 * small + 3 * (12 + 20 + 28 + 12)), (5, whole + 5 * (12 + 20 + 28 + 12))):
        more = {"r": rank, "alpha": ALPHA, "decompose_both": True, "decompose_factor": 8}
        yield from neutral("LoKrConfig", ("lokr_w1", "lokr_w2"), numbers, **more)


@call(GROUP, phase=Phase.ADAPT)
def lokr_convolved_start(ctx: Context) -> Iterator[Check]:
    """LoKr's decompose_both decomposes the small factor of convolutions by the same rule as that of linear layers.

    With decompose_factor 8, the factors of 96 outputs and 160 inputs are 8 * 12 and 8 * 20. The second factor
    multiplies the inputs by the size of the kernel.
    """
    import peft
    import torch

    del ctx
    for rank, small in ((3, 3 * (8 + 8)), (5, 8 * 8)):
        more = {"r": rank, "decompose_both": True, "decompose_factor": 8, "target_modules": ["0"]}
        model = peft.get_peft_model(torch.nn.Sequential(torch.nn.Conv2d(160, 96, 3)), peft.LoKrConfig(**more))
        found = sum(each.numel() for each in model.parameters() if each.requires_grad)
        yield equal(f"trained numbers of a convolution, r={rank}", found, small + rank * (12 + 20 * 9))


@call(GROUP, phase=Phase.ADAPT)
def ia3_start(ctx: Context) -> Iterator[Check]:
    """(IA)^3 starts with ones: one per output, and per input of a feed-forward layer (arXiv 2205.05638)."""
    del ctx
    numbers = SIZES["wide"][0] + SIZES["tall"][1]
    yield from neutral("IA3Config", ("ia3_l",), numbers, feedforward_modules=["tall"])


@call(GROUP, phase=Phase.ADAPT, requires=("peft_HRAConfig",))
def hra_start(ctx: Context) -> Iterator[Check]:
    """HRA starts with pairs of equal reflections, which cancel (https://arxiv.org/abs/2405.17484)."""
    del ctx
    numbers = RANK * sum(into for _, into in SIZES.values())
    yield from neutral("HRAConfig", ("hra_u",), numbers, SAME, r=RANK)


@call(GROUP, phase=Phase.ADAPT, requires=("skew_oft",))
def oft_start(ctx: Context) -> Iterator[Check]:
    """OFT starts with rotations by nothing, one per block of inputs (https://arxiv.org/abs/2306.07280)."""
    del ctx
    numbers = sum(into // BLOCK for _, into in SIZES.values()) * BLOCK * (BLOCK - 1) // 2
    yield from neutral("OFTConfig", ("oft_R",), numbers, SAME, r=0, oft_block_size=BLOCK)


@call(GROUP, phase=Phase.ADAPT, requires=("peft_MissConfig",))
def miss_start(ctx: Context) -> Iterator[Check]:
    """MiSS starts with its one block per layer at zero (https://arxiv.org/abs/2409.15371)."""
    del ctx
    numbers = RANK * sum(out for out, _ in SIZES.values())
    yield from neutral("MissConfig", ("miss_block",), numbers, r=RANK)


@call(GROUP, phase=Phase.ADAPT, requires=("peft_FourierFTConfig",))
def fourierft_start(ctx: Context) -> Iterator[Check]:
    """FourierFT starts with normal coefficients at random frequencies, and adds their inverse transform.

    https://arxiv.org/abs/2405.03003, section 3: random frequencies, W + alpha Re(IDFT(F)). PEFT documents that
    ``init_weights=False``, a normal start, is its default.
    """
    del ctx
    many, strength = 400, 70.0
    original = adapted_layers.base()
    chosen = config("FourierFTConfig", n_frequency=many, scaling=strength)
    model = adapted_layers.adapted(original, chosen)
    spectra = {name: adapted_layers.parts(model, name, "fourierft_spectrum") for name in TARGETS}
    for name, spectrum in spectra.items():
        yield from adapted_layers.distributed(f"spectrum of {name}", spectrum, adapted_layers.normal())
    yield from adapted_layers.trained(model, ("fourierft_spectrum",), many * len(TARGETS))
    expected = {}
    for name, weight in adapted_layers.originals(original).items():
        rows, columns = adapted_layers.layer(model, name).indices["default"]
        expected[name] = weight + strength * inverse_transform(spectra[name], rows, columns, SIZES[name])
    yield adapted_layers.weights_as(adapted_layers.applied(model), expected)


def inverse_transform(spectrum: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
    """The real part of an inverse discrete Fourier transform: a sum of cosines over the number of frequencies."""
    import torch

    places = [2 * math.pi * torch.arange(size).double() / size for size in shape]
    rows, columns = (each.double()[:, None] * place for each, place in zip((rows, columns), places, strict=True))
    # cos(x + y) = cos x cos y - sin x sin y, for each frequency
    cosines = torch.einsum("f,fi,fj->ij", spectrum, rows.cos(), columns.cos())
    return (cosines - torch.einsum("f,fi,fj->ij", spectrum, rows.sin(), columns.sin())) / math.prod(shape)
