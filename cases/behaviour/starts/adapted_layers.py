"""Builders for calls about the start values of adapters: a small base, the weight that a layer applies, statistics.

No two dimensions of the base are equal, so that a transposed matrix or the other side's divisor shows.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Check, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SAME = 1e-5  # relative: the same arithmetic in float32, in another order
WORDS, SIZES = 50, {"wide": (96, 160), "tall": (224, 96)}  # rows of the embedding; (out, in) of the linear layers
TARGETS = tuple(SIZES)
RANK, ALPHA = 12, 20
FALSE_ALARM = 1e-7
PEFT = "base_model.model"


def base(sizes: Mapping[str, tuple[int, int]] = SIZES) -> Any:
    """An embedding and two linear layers with biases, with the values that belong to their names."""
    import torch

    made = torch.nn.Sequential()
    made.add_module("words", torch.nn.Embedding(WORDS, sizes["wide"][1]))
    for name, (out, into) in sizes.items():
        made.add_module(name, torch.nn.Linear(into, out))
    tiny.fill(made)
    return made.eval()


def with_spectrum(ratio: float = 0.5) -> Any:
    """The base with singular values 1, ratio, ratio ** 2, ... in its linear layers, so that ranks are distinct."""
    import torch

    made = base()
    with torch.no_grad():
        for name in TARGETS:
            left, _, right = torch.linalg.svd(made.get_submodule(name).weight.double(), full_matrices=False)
            values = ratio ** torch.arange(left.shape[1], dtype=torch.float64)
            made.get_submodule(name).weight.copy_(left * values @ right)
    return made


def conv1d() -> Any:
    """GPT-2's layers as a base: they store (in, out)."""
    import torch
    from transformers.pytorch_utils import Conv1D

    made = torch.nn.Sequential()
    for name, (out, into) in SIZES.items():
        made.add_module(name, Conv1D(out, into))
    tiny.fill(made)
    return made.eval()


def lora(**other: Any) -> Any:
    from peft import LoraConfig

    return LoraConfig(**{"r": RANK, "lora_alpha": ALPHA, "target_modules": list(TARGETS), **other})


def adapted(model: Any, config: Any, seed: int = 0) -> Any:
    """A copy of a base with an adapter, as the library makes it."""
    import torch
    from peft import get_peft_model

    torch.manual_seed(seed)
    return get_peft_model(copy.deepcopy(model), config).eval()


def layer(model: Any, name: str) -> Any:
    return model.get_submodule(f"{PEFT}.{name}")


def originals(model: Any) -> dict[str, Any]:
    """The linear layers' weights of a base: float64, (out, in)."""
    return {name: stored(model.get_submodule(name)).detach().double().clone() for name in TARGETS}


def stored(module: Any) -> Any:
    """A weight as (out, in)."""
    return module.weight.T if type(module).__name__ == "Conv1D" else module.weight


def bases(model: Any) -> dict[str, Any]:
    """The weights below the adapters: float64, (out, in)."""
    return {name: stored(layer(model, name).get_base_layer()).detach().double().clone() for name in TARGETS}


def applied(model: Any) -> dict[str, Any]:
    """The weights that the adapted linear layers apply, by their forward pass: float64, (out, in)."""
    import torch

    found = {}
    with torch.no_grad():
        for name, (_, into) in SIZES.items():
            bias = layer(model, name).get_base_layer().bias
            found[name] = (layer(model, name)(torch.eye(into)).double() - bias.double()).T
    return found


def parts(model: Any, name: str, part: str) -> Any:
    """A trained matrix of an adapted layer, such as ``lora_A``: float64."""
    found = getattr(layer(model, name), part)["default"]
    return getattr(found, "weight", found).detach().double().clone()


def update(model: Any, name: str, scaling: float) -> Any:
    """The update s B A of a layer, by the formula of LoRA (https://arxiv.org/abs/2106.09685, section 4.1)."""
    return scaling * parts(model, name, "lora_B") @ parts(model, name, "lora_A")


def fill(model: Any) -> Any:
    """Give every trained parameter the values that belong to its name."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(tiny.values(tiny.canonical(name), tuple(parameter.shape)))
    return model


def outputs(model: Any) -> Any:
    import torch

    ids = torch.arange(WORDS)
    with torch.no_grad():
        return model(ids)


def unchanged(model: Any, original: Any, within: float = 0.0) -> Check:
    """Compare the outputs of an adapted model with those of its base; by default, every bit."""
    found, expected = outputs(model), outputs(original)
    if not within:
        return equal("outputs that differ from the base's", int((found != expected).sum()), 0)
    return at_most("outputs off the base's", tolerance.relative(found, expected), within)


def weights_as(found: Mapping[str, Any], expected: Mapping[str, Any], within: float = SAME) -> Check:
    return at_most("applied weights off", tolerance.worst_tensor(dict(found), dict(expected)), within)


def trained(model: Any, marks: tuple[str, ...], count: int) -> list[Check]:
    """Check that a model trains parameters with these words in their names, and nothing else."""
    names = {name: parameter.numel() for name, parameter in model.named_parameters() if parameter.requires_grad}
    others = [name for name in names if not any(mark in name for mark in marks)]
    return [
        equal("trained parameters that are not the adapter's", len(others), 0),
        equal("trained numbers", sum(names.values()), count),
        equal("trained numbers, as the model reports them", int(model.get_nb_trainable_parameters()[0]), count),
    ]


@dataclass(frozen=True)
class Distribution:
    """A distribution with mean 0: its cumulative one, its mean square, and a bound on that of samples."""

    cumulative: Callable[[Any], Any]
    mean_square: float
    bound: Callable[[int], float]


def uniform() -> Distribution:
    """The uniform distribution on (-1, 1); the bound is Hoeffding's inequality for squares, which lie in [0, 1]."""
    return Distribution(
        lambda value: ((value + 1) / 2).clamp(0, 1),
        1 / 3,
        lambda count: math.sqrt(math.log(2 / FALSE_ALARM) / 2 / count),
    )


def normal() -> Distribution:
    """The standard normal distribution; the bound is that of Laurent and Massart for chi-square (lemma 1).

    https://doi.org/10.1214/aos/1015957395
    """
    import torch

    share = math.log(2 / FALSE_ALARM)
    return Distribution(
        lambda value: (1 + torch.erf(value / math.sqrt(2))) / 2,
        1.0,
        lambda count: 2 * math.sqrt(share / count) + 2 * share / count,
    )


def distributed(name: str, samples: Any, expected: Distribution) -> list[Check]:
    """Compare samples with a distribution by the largest difference of cumulative shares, and by the mean square.

    By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart (https://doi.org/10.1214/aop/1176990746), n
    independent samples exceed sqrt(log(2 / p) / 2n) with a probability of at most p.
    """
    import torch

    ordered = samples.flatten().double().sort().values
    count = len(ordered)
    steps, shares = torch.arange(1, count + 1).double() / count, expected.cumulative(ordered)
    found = float(torch.maximum(steps - shares, shares - steps + 1 / count).max())
    square = abs(float(ordered.square().mean()) - expected.mean_square)
    return [
        at_most(f"{name} off its distribution", found, math.sqrt(math.log(2 / FALSE_ALARM) / (2 * count))),
        at_most(f"mean square of {name} off", square, expected.bound(count)),
    ]
