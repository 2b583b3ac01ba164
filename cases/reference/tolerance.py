"""The tolerances of the comparison with the twin: one rule for every cell, from its coarsest dtype.

An error is measured relative to the reference, in units of the unit roundoff ``u`` of the coarsest format that a
number passes through (Higham, Accuracy and Stability of Numerical Algorithms, section 2.1), plus what the twin itself
rounds in float32. Rounding scatters: it is nearly orthogonal to a gradient, so the distance to the twin needs some
tens of u, while the scale of the result is off by less than one. The scale reveals a sum instead of a mean, or a loss
that is one per cent off. The factors are two to three times the largest error of clean runs.

Gradients, weights and logits have a second bound, after TTrace (https://arxiv.org/abs/2506.09280): a multiple of what
perturbing the reference moves each tensor by (``cases.reference.sensitivity``). Both must hold, so the smaller decides,
and the missed check says which. In the profile ``full`` on CPUs, the second one decides for 88 % of the gradients and
all weights, where it is down to a fifth of the first. The first decides for most logits, and for the tensors
that a perturbation moves furthest. Clean runs are off by at most 1.5 times their estimate, and 4 times are allowed: on
GPUs, some errors are up to 1.8 times as large as on CPUs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.model import experts
from cases.reference import quantisation
from cases.reference.twin import LEARNING_RATE
from cases.space.verdict import Check, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.reference.twin import Trajectory
    from cases.space.options import Options

    Errors = list[dict[str, float]]  # of each step, if a kind has steps; by tensor

UNIT_ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 1 / 254}

# Allowed errors: (in units of u, in units of float32's u).
FACTORS = {
    "loss": (1.0, 8.0),
    "loss summed": (6.0, 0.0),  # added for a loss in half precision: a pairwise sum of 64 terms rounds 6 times
    "gradient": (24.0, 64.0),  # per tensor, distance
    "gradient scale": (2.0, 32.0),  # of all tensors of a step together
    "tensor scale": (5.0, 64.0),  # per gradient tensor
    "weights": (8.0, 32.0),  # per tensor, distance
    "update scale": (2.0, 32.0),  # of all changed weights together
    "logits": (16.0, 16.0),
    "logit scale": (2.0, 16.0),
    "reload": (1.0, 8.0),  # the same weights through the same kernels
    "merge": (6.0, 16.0),  # logits, in units of a weight's rounding, added to the bound of the activations
    "unmerge": (3.0, 4.0),  # weights, as above: rounded twice, once as the larger sum
}

# Allowed errors, in units of what a case's roundings move the tensor by if its inputs are perturbed as much.
SENSITIVITY_UNITS = 4.0
# A float32 sum rounds more often than once, so float32 counts three times where it is the coarsest format.
FLOAT32_ROUNDINGS = 2.0

# A singular vector that is computed is off by u times the largest singular value over the gap to the next one: of the
# tiny model's weights at most 549, of what their quantisation loses 474. It is felt per tensor, in this many of these.
CONDITION = {"pissa": 549.0, "loftq": 474.0}
CONDITIONED = {"gradient": 3.0, "weights": 3.0}
# Rounding scatters over the entries of a tensor. In one with fewer than these, each a sum of thousands of terms that
# may cancel, it does not average out, and counts by the root of their number.
FEW = 256
# What moments kept in 8 bits add, in units of what their rounding does to a weight: the distance a step moves it (the
# learning rate, times the moments' relative error), over the weight. The first step knows no rounded moments.
EIGHT_BIT_STATE = {
    "loss": 0.2,
    "gradient": 5.0,
    "gradient scale": 0.4,
    "tensor scale": 2.0,
    "weights": 2.0,
    "update scale": 0.4,
    "logits": 2.0,
    "logit scale": 0.4,
}
TYPICAL_WEIGHT = 0.125  # the root mean square of the tiny model's


def roundoff(options: Options) -> float:
    """The coarsest rounding in a case: of its load dtype, its arithmetic, or LLM.int8's 8-bit activations."""
    arithmetic = {options.autocast, options.bnb_4bit_compute_dtype} - {"off", "load"}
    formats = {options.torch_dtype, *arithmetic, *({options.quant} & {"int8"})}
    if options.mixed_precision != "off":
        formats.add("bf16")
    return max(UNIT_ROUNDOFF[name] for name in formats)


def bound(kind: str, options: Options) -> float:
    coarse, fine = FACTORS[kind]
    fine += CONDITIONED.get(kind, 0.0) * CONDITION.get(options.method, 0.0)
    state = EIGHT_BIT_STATE.get(kind, 0.0) * state_roundoff(options)
    return coarse * roundoff(options) + fine * UNIT_ROUNDOFF["fp32"] + state


def state_roundoff(options: Options) -> float:
    if not options.optim.endswith("8bit"):
        return 0.0
    return LEARNING_RATE[options.optim] * quantisation.moment_roundoff() / TYPICAL_WEIGHT


def differential(found: Trajectory, twin: Trajectory, options: Options) -> list[Check]:
    """Compare the loss and gradients of every step, and every trained weight at the end."""
    found = with_published_names(found)
    same = set(found.after) == set(twin.after)
    missing = "" if same else "+".join(sorted(set(found.after) ^ set(twin.after)))[:200]
    off = distances(found, twin)
    bounds = {kind: bound(kind, options) for kind in FACTORS}
    if found.loss_in != "fp32":
        bounds["loss"] += FACTORS["loss summed"][0] * UNIT_ROUNDOFF[found.loss_in]
    errors = {
        "loss": worst_loss(found, twin),
        "gradient": worst_of(off["gradient"]),
        "gradient scale": worst(scale(a, b) for a, b in zip(found.gradients, twin.gradients, strict=True)),
        "tensor scale": worst_tensor_scale(found, twin),
        "weights": worst_of(off["weights"]),
        "update scale": scale(update(found, twin), update(twin, twin)),
    }
    return [
        Check("trained parameters as in the twin", missing or "all", "==", "all", ok=same),
        *(at_most(kind, error, bounds[kind]) for kind, error in errors.items()),
        *(check for kind, errors in off.items() for check in over_sensitivity(kind, errors, twin, options)),
    ]


def with_published_names(found: Trajectory) -> Trajectory:
    """A trajectory whose tensors have the names of the published checkpoint, as the twin's have."""
    gradients = [experts.published(each) for each in found.gradients]
    return replace(found, gradients=gradients, after=experts.published(found.after))


def inference(found: Any, twin: Trajectory, options: Options) -> list[Check]:
    """Compare the logits of one batch, float32, shape (batch, length, vocabulary)."""
    off = relative(found, twin.logits)
    return [
        at_most("logits", off, bound("logits", options)),
        at_most("logit scale", scale({"": found}, {"": twin.logits}), bound("logit scale", options)),
        *over_sensitivity("logits", [{"": off}], twin, options),
    ]


def distances(found: Trajectory, twin: Trajectory) -> dict[str, Errors]:
    """The relative distance of each gradient, per step, and of each weight after training."""
    pairs = zip(found.gradients, twin.gradients, strict=True)
    gradients = [{n: scattered(b[n]) * off for n, off in tensor_distances(a, b).items()} for a, b in pairs]
    return {"gradient": gradients, "weights": [tensor_distances(found.after, twin.after)]}


def over_sensitivity(kind: str, errors: Errors, twin: Trajectory, options: Options) -> Iterator[Check]:
    """Compare errors with what rounding moves the same tensors by, where an estimate can know that."""
    if kind in twin.sensitivities and is_estimated(options):
        pairs = zip(errors, twin.sensitivities[kind], strict=True)
        units = (off / moved_by(known[name], options) for part, known in pairs for name, off in part.items())
        yield at_most(f"{kind} in units of its sensitivity", worst(units), SENSITIVITY_UNITS)


def is_estimated(options: Options) -> bool:
    """Return whether the roundings of a case resemble a relative perturbation of each entry.

    LLM.int8 rounds in steps of the largest entry of a row, 8-bit moments in steps of the largest of a block, and a
    singular value decomposition in steps of the largest singular value. Clean runs are off by up to 2, 2100 and 38
    times their estimate.
    """
    return options.quant != "int8" and not options.optim.endswith("8bit") and options.method not in CONDITION


def moved_by(sensitivity: float, options: Options) -> float:
    """The relative distance by which a case's roundings may move a tensor, plus the float32 that stores it."""
    fine = UNIT_ROUNDOFF["fp32"]
    return sensitivity * (roundoff(options) + FLOAT32_ROUNDINGS * fine) + fine


def weight_roundoff(options: Options) -> float:
    """The relative error (root mean square) of rounding merged weights to their format.

    Errors are uniform within half a gap, so a float's is its largest error / sqrt(3). For a quantised format, it is the
    error of the reference quantisation on normally distributed weights.
    """
    largest = UNIT_ROUNDOFF[options.torch_dtype] / 3**0.5
    return largest if options.quant == "none" else max(largest, quantisation.roundoff(options.quant))


def merged(name: str, found: Any, before: Any, options: Options) -> list[Check]:
    """Compare logits before and after a merge, which rounds each weight once."""
    return [at_most(name, relative(found, before), merge_bound(options))]


def merge_bound(options: Options) -> float:
    coarse, fine = FACTORS["merge"]
    return coarse * weight_roundoff(options) + fine * UNIT_ROUNDOFF["fp32"] + bound("logits", options)


def unmerged(after: dict[str, Any], before: dict[str, Any], options: Options) -> Check:
    coarse, fine = FACTORS["unmerge"]
    allowed = coarse * weight_roundoff(options) + fine * UNIT_ROUNDOFF["fp32"]
    return at_most("unmerged weights", worst_tensor(after, before), allowed)


def generation(tokens: Any, twin: Trajectory, options: Options) -> list[Check]:
    """Compare greedy tokens, int64 (batch, new tokens): the first that differs from the twin's must be a near tie."""
    return greedy("generated tokens", tokens, (twin.tokens, twin.token_logits), options)


def between(found: Trajectory, twin: Trajectory, options: Options) -> list[Check]:
    """Compare the tokens that were generated between steps, which depend on the weights of that step."""
    return [
        check
        for step, ((tokens, _), reference) in enumerate(zip(found.between, twin.between, strict=True))
        for check in greedy(f"tokens generated after step {step}", tokens, reference, options)
    ]


def greedy(name: str, tokens: Any, reference: tuple[Any, Any], options: Options) -> list[Check]:
    """Compare tokens with the reference's, using the logits that the reference chose them by."""
    wanted, chosen_by = reference
    if tuple(tokens.shape) != tuple(wanted.shape):
        return [equal(f"shape of the {name}", str(tuple(tokens.shape)), str(tuple(wanted.shape)))]
    regret = 0.0
    for row, (mine, theirs) in enumerate(zip(tokens, wanted, strict=True)):
        apart = (mine != theirs).nonzero()
        if len(apart):
            at = int(apart[0])
            logits = chosen_by[row, at]
            spread = logits[logits.isfinite()].std()
            regret = max(regret, float((logits[theirs[at]] - logits[mine[at]]) / spread))
    # A difference of two logits, each of which may be off by its bound.
    return [at_most(f"regret of the {name}", regret, 2 * bound("logits", options))]


def update(run: Trajectory, start: Trajectory) -> dict[str, Any]:
    """The change of each weight in training; both runs started from the twin's values."""
    return {name: weight - start.before[name] for name, weight in run.after.items() if name in start.before}


def scale(found: dict[str, Any], twin: dict[str, Any]) -> float:
    """``|<found, twin> / <twin, twin> - 1|`` over all tensors as one vector: 0 for the right size, 1 for twice it."""
    if set(found) != set(twin) or any(found[name].shape != twin[name].shape for name in twin):
        return float("inf")
    inner = sum(float((found[name].double() * twin[name].double()).sum()) for name in twin)
    return abs(inner / max(sum(float(each.double().square().sum()) for each in twin.values()), 1e-30) - 1)


def worst_tensor_scale(found: Trajectory, twin: Trajectory) -> float:
    pairs = zip(found.gradients, twin.gradients, strict=True)
    return worst(scattered(b[n]) * scale({n: a[n]} if n in a else {}, {n: b[n]}) for a, b in pairs for n in b)


def scattered(tensor: Any) -> float:
    """The weight of a tensor's error: 1, less for a short tensor."""
    return float(min(1.0, (tensor.numel() / FEW) ** 0.5))


def worst_loss(found: Trajectory, twin: Trajectory) -> float:
    """Largest relative error of a step's loss."""
    return worst(abs(a - b) / abs(b) for a, b in zip(found.losses, twin.losses, strict=True))


def worst_tensor(found: dict[str, Any], twin: dict[str, Any]) -> float:
    """Largest ||found - reference|| / ||reference|| over the tensors; a missing tensor is infinitely far."""
    return worst(tensor_distances(found, twin).values())


def tensor_distances(found: dict[str, Any], twin: dict[str, Any]) -> dict[str, float]:
    return {name: relative(found[name], each) if name in found else float("inf") for name, each in twin.items()}


def worst_of(parts: Errors) -> float:
    return worst(off for part in parts for off in part.values())


def relative(found: Any, reference: Any) -> float:
    if found.shape != reference.shape:
        return float("inf")
    return float((found.double() - reference.double()).norm() / reference.double().norm().clamp_min(1e-30))


def worst(errors: Any) -> float:
    """The largest error; NaN counts as larger than any number."""
    numbers = list(errors)
    return next((n for n in numbers if n != n), max(numbers, default=float("inf")))  # noqa: PLR0124 - NaN is not itself
