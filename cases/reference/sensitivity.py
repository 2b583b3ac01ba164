"""How far a rounding can move each tensor of a run, estimated by perturbing the reference.

TTrace (https://arxiv.org/abs/2506.09280) estimates the tolerance of each tensor by a perturbed run of its reference.
Perturbed here are all tensors that the network starts from, frozen or trained, and the output of every embedding in
every forward pass. Each entry x becomes x (1 + e), with e uniform between -u and u from a fixed seed: what storing it
in a format with unit roundoff u may do to it. The sensitivity of a tensor is its relative distance to the unperturbed
run, in units of u.

It hardly depends on u, so one size serves every dtype. For 98 % of the tensors, the sensitivity at bfloat16's or int8's
roundoff differs by less than 8 % from that at 2**-12. Mixtral is the exception, as its routing is not continuous:
there, distances are up to eight times as large. An estimate that is too large leaves the decision to the arithmetic
bound.

Perturbed embeddings alone would do for gradients, but not for weights, which are rounded as they are stored: in
bfloat16, clean runs are off by up to 190 times that estimate. Losses and scales have no estimate. Each is one signed
number, which a perturbation may hardly move by chance: in float32, the losses of clean runs are off by 16 times their
estimate in the median, and by up to 71 times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.model import architectures, data, tiny
from cases.reference import tolerance, twin
from cases.reference.network import Network
from cases.space.options import TRAINING

if TYPE_CHECKING:
    from pathlib import Path

    from cases.reference.twin import Sensitivities, Trajectory
    from cases.space.options import Options

PERTURBATION = 2.0**-12  # small enough to be linear, and large beside the float32 in which trajectories are stored
SEEDS = range(4)  # one run each: those of a single run scatter by 25 %
# Float32 rounds the angle of a rotary position in proportion to the position. In rows of 1040 tokens, that alone moves
# gradients by 13 to 39 roundoffs, which no perturbed input shows.
LONGEST = 512  # tokens of a row


@dataclass(kw_only=True)
class PerturbedNetwork(Network):
    """A network whose embeddings are perturbed; ``generator`` is torch's."""

    generator: Any

    def embedding(self, name: str, ids: Any) -> Any:
        found = super().embedding(name, ids)
        return found * factors(found, self.generator)


def run(options: Options, folder: Path) -> Trajectory:
    """The trajectory of the reference, with the sensitivities of its tensors if they can be estimated.

    ``folder`` has the published checkpoint.
    """
    found = twin.run(options, folder)
    if data.length(options) <= LONGEST:
        found.sensitivities = root_mean_square([distances(perturbed(options, folder, seed), found) for seed in SEEDS])
    return found


def perturbed(options: Options, folder: Path, seed: int) -> Trajectory:
    """The trajectory of the perturbed reference, without losses and generated tokens."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    plain = twin.network(options, folder)
    network = PerturbedNetwork(**vars(plain), generator=generator)
    for tensor in network.tensors.values():
        tensor.mul_(factors(tensor, generator))
    trained = twin.trained_tensors(network, options)
    found = twin.Trajectory()
    with torch.no_grad():
        for name, tensor in trained.items():
            if name not in network.tensors:
                tensor.mul_(factors(tensor, generator))
    if options.flow in TRAINING:
        found.gradients = [gradients for _, gradients in twin.steps(network, trained, options)]
        found.after = twin.stored(trained)
    with torch.no_grad():
        found.logits = twin.logits(network, trained, tiny.batch(0, architectures.vocabulary(options)), options).float()
    return found


def factors(tensor: Any, generator: Any) -> Any:
    """Random factors close to 1, of the tensor's shape."""
    import torch

    return 1 + PERTURBATION * (2 * torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype) - 1)


def distances(moved: Trajectory, found: Trajectory) -> Sensitivities:
    """The relative distance of each tensor to that of the unperturbed run, in units of the perturbation."""
    pairs = zip(moved.gradients, found.gradients, strict=True)
    return {
        "gradient": [in_units(tolerance.tensor_distances(*pair)) for pair in pairs],
        "weights": [in_units(tolerance.tensor_distances(moved.after, found.after))],
        "logits": [{"": tolerance.relative(moved.logits, found.logits) / PERTURBATION}],
    }


def in_units(errors: dict[str, float]) -> dict[str, float]:
    return {name: off / PERTURBATION for name, off in errors.items()}


def root_mean_square(runs: list[Sensitivities]) -> Sensitivities:
    """Of each tensor, over several runs."""
    return {
        kind: [
            {name: math.sqrt(sum(run[kind][i][name] ** 2 for run in runs) / len(runs)) for name in part}
            for i, part in enumerate(parts)
        ]
        for kind, parts in runs[0].items()
    }
