"""Derives the GPU memory of a rank from the numbers of weights, by strategy, and compares measurements with it.

Sizes are in bytes. Training in float32 with AdamW needs 4 bytes a weight for the weight, 4 for its gradient and 8 for
two moments. The for-each step of torch's optimisers holds 4 more, as ``torch.optim`` documents. Gradients exist during
a step only, since ``zero_grad`` frees them. So a rank with ``n`` weights holds ``12 n`` between two steps and ``20 n``
at the peak. Each strategy changes some of these terms:

* DDP keeps buckets with a copy of all gradients.
* FSDP divides all terms by the number of ranks, and gathers few units (layers) at a time. While a unit computes, the
  next one is gathered into a buffer, from which FSDP2 copies it. The gradient of a unit exists whole and is flattened
  for the reduction, while that of the unit before is still being reduced. These are ``IN_FLIGHT`` copies of a unit.
  FSDP1 with ``use_orig_params`` keeps the flat gradients after ``zero_grad``, until the next forward pass.
* Offloading keeps the shards, their gradients and the moments in host memory.
* NF4 packs two weights in a byte, with one float32 scale for 64 of them (QLoRA, section 2). A layer dequantises its
  weight to bfloat16 when it computes. Only the adapter is trained.
* 8-bit optimisers keep two moments of one byte, with one float32 scale for 256 values. Paged ones keep them in managed
  memory, which the allocator does not count.

A bound adds what the promise leaves open:

* ``ROUNDING``: PyTorch's allocator rounds up to 512 bytes, and may leave a rest of up to 1 MiB with a larger block,
  which is less than a tenth of the parts here.
* ``SPARE``: buffers, positions and code books.
* ``WORKSPACE``: cuBLASLt takes up to 32 MiB during a product on Hopper, and 1 MiB before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.space.verdict import at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.space.verdict import Check

MIB = 2**20
FLOAT, HALF = 4, 2
MOMENTS = 2 * FLOAT
FOREACH = FLOAT
IN_FLIGHT = 6  # copies of a unit: three of its weights and three of its gradients
NF4_BLOCK, STATE_BLOCK = 64, 256  # values that share a scale
ROUNDING = 1.1
SPARE, WORKSPACE = 16 * MIB, 32 * MIB


@dataclass(frozen=True)
class Promise:
    """Bytes of one rank on its GPU: ``resting`` between two steps, and at its peak from ``least`` to ``peak``."""

    resting: float
    least: float
    peak: float
    kept: float = 0.0  # that may stay between two steps besides


@dataclass(frozen=True)
class MeasuredMemory:
    """Bytes that tensors occupied between two steps, and at the peak of the next one."""

    resting: int
    peak: int


def whole(weights: int) -> Promise:
    """One process that trains all weights."""
    resting = weights * (FLOAT + MOMENTS)
    return Promise(resting, resting + weights * FLOAT, resting + weights * (FLOAT + FOREACH))


def replicated(weights: int) -> Promise:
    """A rank of DDP that trains all weights; its buckets stay between two steps."""
    alone, buckets = whole(weights), weights * FLOAT
    return Promise(alone.resting + buckets, alone.least + buckets, alone.peak + buckets)


def sharded(weights: int, *, unit: int, ranks: int, keeps_gradients: bool = False) -> Promise:
    """A rank of FSDP that trains all weights; ``unit`` is the number of weights of the largest unit."""
    share = whole(weights)
    gathered = IN_FLIGHT * unit * FLOAT
    passes = share.least / ranks + gathered  # the moments wait while gradients are computed
    kept = weights * FLOAT / ranks if keeps_gradients else 0.0
    return Promise(share.resting / ranks, share.least / ranks, max(passes, share.peak / ranks), kept)


def offloaded(*, unit: int, ranks: int) -> Promise:
    """A rank of FSDP whose shards, gradients and moments are in host memory; only units in flight are on the GPU."""
    whole_units, shards = IN_FLIGHT * unit * FLOAT, IN_FLIGHT * unit * FLOAT / ranks
    return Promise(0, unit * FLOAT, whole_units + shards)


def quantised(packed: int, *, others: int, largest: int, trained: int) -> Promise:
    """QLoRA in one process.

    ``packed`` counts the weights in NF4, ``others`` the bytes of all other frozen ones, ``largest`` the weights of the
    largest packed layer, and ``trained`` those of the float32 adapter.
    """
    base = packed / 2 + packed / NF4_BLOCK * FLOAT + others
    adapter = whole(trained)
    resting = base + adapter.resting
    return Promise(resting, base + adapter.least, base + adapter.peak + 2 * largest * HALF)


def eight_bit(weights: int, *, paged: bool = False) -> Promise:
    """One process that trains all weights with an 8-bit AdamW, whose step needs no further copy."""
    moments = 0 if paged else 2 * (weights + weights / STATE_BLOCK * FLOAT)
    resting = weights * FLOAT + (0 if paged else 2 * weights)  # at least: older versions have fewer scales
    return Promise(resting, resting + weights * FLOAT, weights * 2 * FLOAT + moments)


def checks(found: MeasuredMemory, promise: Promise, *, activations: float) -> Iterator[Check]:
    """Compare a measured step with its promise; ``activations`` are the bytes that the passes may keep besides."""
    name = "MiB between two steps"
    yield at_least(name, found.resting / MIB, promise.resting / MIB)
    yield at_most(name, found.resting / MIB, ((promise.resting + promise.kept) * ROUNDING + SPARE) / MIB)
    name = "MiB at the peak of a step"
    yield at_least(name, found.peak / MIB, promise.least / MIB)
    yield at_most(name, found.peak / MIB, (promise.peak * ROUNDING + SPARE + WORKSPACE + activations) / MIB)
