"""The promised memory of strategies follows from the numbers of weights, and measurements beyond it are red."""

from __future__ import annotations

import pytest

from cases.checks import memory_promises
from cases.checks.memory_promises import MIB, MeasuredMemory, Promise
from cases.space.verdict import missed

WEIGHTS, UNIT = 1_200_000_000, 100_000_000
GB = 10**9


def test_one_process_holds_12_bytes_a_weight_and_20_at_the_peak() -> None:
    assert memory_promises.whole(WEIGHTS) == Promise(14.4 * GB, 19.2 * GB, 24 * GB)


def test_ddp_adds_buckets_of_the_size_of_the_gradients() -> None:
    assert memory_promises.replicated(WEIGHTS) == Promise(19.2 * GB, 24 * GB, 28.8 * GB)


@pytest.mark.parametrize(
    ("ranks", "promise"),
    [
        (2, Promise(7.2 * GB, 9.6 * GB, 12 * GB)),  # the step: half of 24; the passes: 9.6 and six layers of 0.4
        (4, Promise(3.6 * GB, 4.8 * GB, 7.2 * GB)),  # the passes: 4.8 and six layers of 0.4
    ],
)
def test_fsdp_divides_all_terms_and_adds_units_in_flight(ranks: int, promise: Promise) -> None:
    assert memory_promises.sharded(WEIGHTS, unit=UNIT, ranks=ranks) == promise


def test_fsdp1_may_keep_its_share_of_the_gradients_between_two_steps() -> None:
    promise = memory_promises.sharded(WEIGHTS, unit=UNIT, ranks=2, keeps_gradients=True)
    assert promise.kept == 2.4 * GB
    kept, freed = (MeasuredMemory(int(each), int(promise.least)) for each in (9.6 * GB, 7.2 * GB))
    assert not missed(memory_promises.checks(kept, promise, activations=0))
    assert not missed(memory_promises.checks(freed, promise, activations=0))
    without = memory_promises.sharded(WEIGHTS, unit=UNIT, ranks=2)
    assert missed(memory_promises.checks(kept, without, activations=0))


def test_offloading_leaves_only_units_in_flight() -> None:
    assert memory_promises.offloaded(unit=UNIT, ranks=2) == Promise(0, 0.4 * GB, 3.6 * GB)


def test_qlora_holds_half_a_byte_and_a_sixteenth_of_a_packed_weight() -> None:
    found = memory_promises.quantised(WEIGHTS, others=10**6, largest=4 * 10**6, trained=10**7)
    assert found.resting == 0.675 * GB + 10**6 + 0.12 * GB
    assert found.peak == found.resting + 0.08 * GB + 16 * 10**6


def test_8_bit_moments_take_two_bytes_and_their_scales() -> None:
    found = memory_promises.eight_bit(256 * 10**6)
    assert (found.resting, found.peak) == (6 * 256 * 10**6, 8 * 256 * 10**6 + 2 * (256 + 4) * 10**6)


def test_paged_moments_take_nothing() -> None:
    assert memory_promises.eight_bit(WEIGHTS, paged=True) == Promise(4.8 * GB, 9.6 * GB, 9.6 * GB)


PROMISE = Promise(1000 * MIB, 1500 * MIB, 2000 * MIB)


@pytest.mark.parametrize(
    ("resting", "peak", "red"),
    [
        (1000, 1500, []),
        (1110, 2240, []),
        (990, 1500, ["MiB between two steps"]),
        (1120, 2000, ["MiB between two steps"]),
        (1000, 1490, ["MiB at the peak of a step"]),
        (1000, 2260, ["MiB at the peak of a step"]),
    ],
)
def test_measurements_outside_the_bounds_are_red(resting: int, peak: int, red: list[str]) -> None:
    found = memory_promises.checks(MeasuredMemory(resting * MIB, peak * MIB), PROMISE, activations=0)
    assert [check.name for check in missed(found)] == red


def red_of(found: Promise, promise: Promise) -> bool:
    """Return whether memory as one promise has it breaks another, for a decoder as large as that of the cells."""
    from cases.api import memory

    measured = MeasuredMemory(int(found.resting), int(found.least))
    return bool(missed(memory_promises.checks(measured, promise, activations=memory.ACTIVATIONS)))


def test_the_decoder_of_the_cells_tells_the_promises_apart() -> None:
    from cases.api import memory

    layers = memory.LAYERS * memory.LAYER
    whole, halved = memory_promises.whole(layers), memory_promises.sharded(layers, unit=memory.LAYER, ranks=2)
    eight_bit = memory_promises.eight_bit(layers)
    assert red_of(whole, halved)
    assert red_of(halved, memory_promises.offloaded(unit=memory.LAYER, ranks=2))
    assert red_of(whole, eight_bit)
    assert red_of(eight_bit, memory_promises.eight_bit(layers, paged=True))


@pytest.mark.parametrize("bytes_a_weight", [1.0, 2.0])
def test_a_base_in_8_or_16_bits_breaks_the_promise_of_qlora(bytes_a_weight: float) -> None:
    from cases.api import memory

    packed = memory.LAYERS * memory.LAYER
    promise = memory_promises.quantised(packed, others=0, largest=memory.HIDDEN * memory.INNER, trained=0)
    base = packed * bytes_a_weight
    assert red_of(Promise(base, base, base), promise)


def test_weights_that_stay_gathered_break_the_promise_of_fsdp() -> None:
    """Without resharding, all weights are whole while the last gradients are computed."""
    from cases.api import memory

    weights = memory.LAYERS * memory.LAYER
    promise = memory_promises.sharded(weights, unit=memory.LAYER, ranks=2)
    gathered = promise.least + weights * memory_promises.FLOAT + memory.LAYER * memory_promises.FLOAT
    assert red_of(Promise(promise.resting, gathered, gathered), promise)
