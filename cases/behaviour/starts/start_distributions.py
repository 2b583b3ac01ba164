"""The distributions that methods draw their start values from, by their papers or PEFT's documentation.

A layer is large enough that another range of the numbers shows: of n uniform numbers, the largest one reaches the end
of the range but for a part of 20 / n, with a probability of all but 2e-9.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Drawn = tuple[str, float]  # the kind of a distribution, and its largest number or its standard deviation
    Start = tuple[str, dict[str, Any], Mapping[str, Drawn]]  # a configuration, its arguments, and its parts

GROUP = "Start values of other adapters"
OUT, IN, RANK, BLOCK = 512, 256, 64, 16
ZERO: Drawn = ("zero", 0.0)
END = 20.0


def uniform(fan: int) -> Drawn:
    """The uniform distribution of ``kaiming_uniform_(a=sqrt(5))``: up to 1 / sqrt(fan in)."""
    return "uniform", fan**-0.5


XAVIER: Drawn = ("uniform", math.sqrt(6 / (IN + OUT)))
# The class of the configuration and its arguments; by part: what it is drawn from.
STARTS: Mapping[str, Start] = {
    "LoHa": (
        "LoHaConfig",
        {"r": RANK},
        {"hada_w1_a": uniform(RANK), "hada_w1_b": uniform(IN), "hada_w2_a": uniform(RANK), "hada_w2_b": ZERO},
    ),
    "LoHa, random": (
        "LoHaConfig",
        {"r": RANK, "init_weights": False},
        {"hada_w1_a": uniform(RANK), "hada_w1_b": uniform(IN), "hada_w2_a": uniform(RANK), "hada_w2_b": uniform(IN)},
    ),
    "LoKr": (
        "LoKrConfig",
        {"r": 32, "decompose_factor": 2},
        {"lokr_w1": ZERO, "lokr_w2_a": uniform(32), "lokr_w2_b": uniform(IN // 2)},
    ),
    "DeLoRA": ("DeloraConfig", {"r": RANK}, {"delora_A": uniform(IN), "delora_B": ZERO}),
    "DeLoRA, random": (
        "DeloraConfig",
        {"r": RANK, "init_weights": False},
        {"delora_A": uniform(IN), "delora_B": uniform(RANK)},
    ),
    "C3A": ("C3AConfig", {"block_size": BLOCK}, {"c3a_kernel": XAVIER}),
    "C3A, False": ("C3AConfig", {"block_size": BLOCK, "init_weights": False}, {"c3a_kernel": XAVIER}),
    "C3A, Kaiming": (
        "C3AConfig",
        {"block_size": BLOCK, "init_weights": "kaiming_uniform"},
        {"c3a_kernel": uniform(IN)},
    ),
    "C3A, Gauss": ("C3AConfig", {"block_size": BLOCK, "init_weights": "gaussian"}, {"c3a_kernel": ("normal", 1.0)}),
    "C3A, True": ("C3AConfig", {"block_size": BLOCK, "init_weights": True}, {"c3a_kernel": ZERO}),
    "VB-LoRA": (
        "VBLoRAConfig",
        {"vector_length": 32},
        {"vblora_logits_A": ("normal", 0.1), "vblora_logits_B": ("normal", 0.1), "bank": ("uniform", 0.02)},
    ),
    "VB-LoRA, other spreads": (
        "VBLoRAConfig",
        {"vector_length": 32, "init_logits_std": 0.4, "init_vector_bank_bound": 0.5},
        {"vblora_logits_A": ("normal", 0.4), "vblora_logits_B": ("normal", 0.4), "bank": ("uniform", 0.5)},
    ),
    "AdaLoRA": (
        "AdaLoraConfig",
        {"init_r": RANK, "total_step": 10},
        {"lora_A": ("normal", 0.02), "lora_B": ("normal", 0.02), "lora_E": ZERO},
    ),
    "VeRA": (
        "VeraConfig",
        {"r": RANK},
        {"vera_A": ("uniform", math.sqrt(6 / IN)), "vera_B": ("uniform", math.sqrt(6 / RANK))},
    ),
}

KERNEL = (3, 2)
POINTS = RANK * KERNEL[0] * KERNEL[1]  # the fan in of a decomposed kernel between two ranks
DECOMPOSED: dict[str, Any] = {"r": RANK, "use_effective_conv2d": True}
LOHA = {"hada_w1_a": uniform(OUT), "hada_w1_b": uniform(IN), "hada_w2_a": uniform(OUT), "hada_t1": uniform(POINTS)}
LOKR = {"lokr_w2_a": uniform(OUT // 2), "lokr_w2_b": uniform(IN // 2), "lokr_t2": uniform(POINTS)}
LOKR_SIZES = DECOMPOSED | {"decompose_factor": 2}
CONVOLUTIONS: Mapping[str, Start] = {
    "LoHa": ("LoHaConfig", DECOMPOSED, LOHA | {"hada_t2": uniform(POINTS), "hada_w2_b": ZERO}),
    "LoHa, random": (
        "LoHaConfig",
        DECOMPOSED | {"init_weights": False},
        LOHA | {"hada_t2": uniform(POINTS), "hada_w2_b": uniform(IN)},
    ),
    "LoKr": ("LoKrConfig", LOKR_SIZES, LOKR | {"lokr_w1": ZERO}),
    "LoKr, random": ("LoKrConfig", LOKR_SIZES | {"init_weights": False}, LOKR | {"lokr_w1": uniform(2)}),
}


def part(model: Any, name: str) -> Any:
    """The numbers of a part of the one adapter, float64. VB-LoRA's bank and VeRA's matrices belong to the model."""
    if name == "bank":
        return model.base_model.vblora_vector_bank["default"].detach().double()
    if name in {"vera_A", "vera_B"}:
        return getattr(model.base_model, name)["default"].detach().double()
    return getattr(model.base_model.model[0], name)["default"].detach().double()


def drawn(title: str, samples: Any, kind: str, size: float) -> Iterator[Check]:
    if kind == "zero":
        yield equal(f"numbers that are not zero, {title}", int((samples != 0).sum()), 0)
        return
    scaled = samples / size
    if kind == "normal":
        yield from adapted_layers.distributed(title, scaled, adapted_layers.normal())
        return
    yield from adapted_layers.distributed(title, scaled, adapted_layers.uniform())
    largest = float(scaled.abs().max())
    yield at_most(f"largest number over its end, {title}", largest, 1.0 + 1e-6)
    yield at_least(f"largest number under its end, {title}", largest, 1.0 - END / scaled.numel())


@call(GROUP, phase=Phase.ADAPT)
def distributions_of_starts(_ctx: Context) -> Iterator[Check]:
    """Each method draws its parts from the distribution and the range that it documents, as its settings say.

    LoHa, LoKr and DeLoRA draw as Linear does (arXiv 2108.06098, 2309.14859, 2503.18225), C3A by init_weights
    (2407.19342), VB-LoRA by init_logits_std and init_vector_bank_bound (2405.15179), VeRA by Kaiming's rule
    (2310.11454).
    """
    import torch

    yield from started(lambda: torch.nn.Linear(IN, OUT), STARTS)


@call(GROUP, phase=Phase.ADAPT)
def distributions_of_convolution_starts(_ctx: Context) -> Iterator[Check]:
    """LoHa and LoKr draw the three parts of a decomposed kernel as layers of their shapes do: up to 1 / sqrt(fan in).

    The part between two ranks has a fan in of the rank times the kernel's points (arXiv 2108.06098, proposition 3).
    """
    import torch

    yield from started(lambda: torch.nn.Conv2d(IN, OUT, KERNEL), CONVOLUTIONS)


def started(layer: Callable[[], Any], starts: Mapping[str, Start]) -> Iterator[Check]:
    """Check what each method that this PEFT has draws for a layer."""
    import peft
    import torch

    for title, (kind, settings, parts) in starts.items():
        if not hasattr(peft, kind):
            continue
        for seed in (0, 1):
            base = torch.nn.Sequential(layer())
            torch.manual_seed(seed)
            model = peft.get_peft_model(base, getattr(peft, kind)(target_modules=["0"], **settings))
            if kind == "VeraConfig" and seed:
                continue  # its numbers follow from projection_prng_key
            for name, (of, size) in parts.items():
                yield from drawn(f"{name} of {title}, seed {seed}", part(model, name), of, size)
