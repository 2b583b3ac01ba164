"""CorDA: the start of an adapter from a weight times the covariance of its inputs (https://arxiv.org/abs/2406.05223)."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SAME, TARGETS
from cases.behaviour.starts.data_layers import chain, linear_only, roundoff, rows, sides
from cases.behaviour.starts.decomposed_starts import off
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Tensors = dict[str, Any]

GROUP = "Start values computed from data"
SCALING = ALPHA / RANK
DAMP = 0.01  # of the mean variance, which CorDA adds to a covariance so that it has an inverse


def covariances(original: Any) -> Tensors:
    """By layer: the mean over two batches of X^T X, of inputs over their largest value."""
    weights = adapted_layers.originals(original)
    found: Tensors = {}
    for number in range(2):
        for name, inputs in chain(rows(number).double(), weights, original):
            scaled = inputs / inputs.max().abs()
            found[name] = found.get(name, 0) + scaled.T @ scaled / 2
    return found


def damped(covariance: Any) -> Any:
    import torch

    return covariance + DAMP * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=torch.float64)


def replace_attrs() -> None:
    """Stand in for the package attrs if it is absent, so that CorDA's numbers are judged without it, too.

    ``corda_imports`` judges the import as a user has it.
    """
    if importlib.util.find_spec("attr") is None:
        stand_in = types.ModuleType("attr")
        stand_in.__dict__["dataclass"] = dataclasses.dataclass
        stand_in.__spec__ = importlib.machinery.ModuleSpec("attr", None)
        sys.modules["attr"] = stand_in


def corda_config(method: str, **other: Any) -> Any:
    from peft.tuners.lora.config import CordaConfig

    return adapted_layers.lora(init_lora_weights="corda", corda_config=CordaConfig(corda_method=method), **other)


def prepared(original: Any, config: Any, *, run: bool = True) -> Any:
    """A copy of a base with CorDA's decompositions, adapted."""
    import copy

    import torch
    from peft import get_peft_model

    replace_attrs()
    from peft.tuners.lora.corda import preprocess_corda

    model = copy.deepcopy(original)

    def calibrate() -> None:
        with torch.no_grad():
            for number in range(2):
                model(rows(number))

    preprocess_corda(model, config, run_model=calibrate if run else None)
    return get_peft_model(model, config).eval()


def corda_checks(original: Any, method: str, **other: Any) -> Iterator[Check]:
    """Check the part of W C that the adapter takes, each side of it, and that the sum with the residual is W."""
    import torch

    model = prepared(original, corda_config(method, **other))
    weights, spread = adapted_layers.originals(original), covariances(original)
    a, b = sides(model, "lora_A"), sides(model, "lora_B")
    taken, squares, within = {}, {}, SAME
    for name, weight in weights.items():
        whole = damped(spread[name])
        left, values, right = torch.linalg.svd(weight @ whole, full_matrices=False)
        first, last = (0, RANK) if method == "ipm" else (len(values) - RANK, len(values))
        taken[name] = left[:, first:last] * values[first:last] @ right[first:last]
        squares[name] = torch.diag(values[first:last]) / SCALING
        within = max(within, roundoff(values, first, last) * float(torch.linalg.cond(whole)))
        a[name] = a[name] @ whole
    yield off("parts of W C off", {name: SCALING * b[name] @ a[name] for name in TARGETS}, taken, within)
    yield off("lora_A C of its own off", {name: each @ each.T for name, each in a.items()}, squares, within)
    yield off("lora_B of its own off", {name: each.T @ each for name, each in b.items()}, squares, within)
    left = {name: weights[name] - adapted_layers.update(model, name, SCALING) for name in TARGETS}
    yield off("residuals off", adapted_layers.bases(model), left, SAME * growth(weights, left))
    yield adapted_layers.weights_as(adapted_layers.applied(model), weights, SAME * growth(left, weights))
    fields = [name for name in TARGETS if hasattr(adapted_layers.layer(model, name).get_base_layer(), "eigens")]
    yield equal("layers that keep decompositions", len(fields), 0)


def growth(some: Tensors, others: Tensors) -> float:
    """The largest factor between norms, at least 1: what rounding of the larger tensors is in the smaller ones."""
    return max(1.0, *(float(some[name].norm() / others[name].norm()) for name in some))


@call(GROUP, phase=Phase.IMPORT, requires=("corda",))
def corda_imports(ctx: Context) -> Iterator[Check]:
    """PEFT's CorDA imports with what PEFT depends on.

    https://huggingface.co/docs/peft/developer_guides/lora, section "CorDA"
    """
    from peft.tuners.lora.corda import preprocess_corda

    del ctx
    yield equal("name", preprocess_corda.__name__, "preprocess_corda")


@call(GROUP, phase=Phase.ADAPT, requires=("corda",))
def corda_instruction_start(ctx: Context) -> Iterator[Check]:
    """CorDA's method ipm takes the principal part of the weight times the covariance of the inputs."""
    del ctx
    yield from corda_checks(linear_only(), "ipm")


@call(GROUP, phase=Phase.ADAPT, requires=("corda",))
def corda_knowledge_start(ctx: Context) -> Iterator[Check]:
    """CorDA's method kpm takes the smallest part of the weight times the covariance of the inputs."""
    del ctx
    yield from corda_checks(linear_only(), "kpm")


@call(GROUP, phase=Phase.ADAPT, requires=("corda",))
def corda_on_conv1d_start(ctx: Context) -> Iterator[Check]:
    """CorDA on GPT-2's Conv1D layers decomposes their transposed weights."""
    del ctx
    yield from corda_checks(adapted_layers.conv1d(), "ipm", fan_in_fan_out=True)


@call(GROUP, phase=Phase.ADAPT, requires=("corda",))
def corda_from_files(ctx: Context) -> Iterator[Check]:
    """CorDA starts alike from its cache of decompositions, and from its file of covariances without a run."""
    for kind in ("cache_file", "covariance_file"):
        config = corda_config("ipm")
        setattr(config.corda_config, kind, str(ctx.kept / kind / "file.pt"))
        first = prepared(linear_only(), config)
        second = prepared(linear_only(), config, run=False)
        for part in ("lora_A", "lora_B"):
            wanted = sides(first, part)
            unlike = [name for name, found in sides(second, part).items() if not found.equal(wanted[name])]
            yield equal(f"layers whose {part} differs with {kind}", len(unlike), 0)


@call(GROUP, phase=Phase.ADAPT, requires=("corda",))
def corda_of_other_ranks(ctx: Context) -> Iterator[Check]:
    """CorDA takes the rank of rank_pattern and the alpha of alpha_pattern; the model equals its base."""
    del ctx
    original = linear_only()
    more = {"rank_pattern": {"tall": RANK - 4}, "alpha_pattern": {"tall": ALPHA + 2}}
    model = prepared(original, corda_config("ipm", **more))
    found = {name: tuple(side.shape) for name, side in sides(model, "lora_A").items()}
    yield equal("shapes of lora_A", str(found), str({"wide": (RANK, 160), "tall": (RANK - 4, 96)}))
    weights = adapted_layers.originals(original)
    kept = adapted_layers.bases(model)
    yield adapted_layers.weights_as(adapted_layers.applied(model), weights, SAME * growth(kept, weights))
    update = adapted_layers.update(model, "tall", (ALPHA + 2) / (RANK - 4))
    yield off("residual off", {"tall": kept["tall"]}, {"tall": weights["tall"] - update}, SAME * growth(weights, kept))
