"""Draws the comparison of a CPU with GPUs as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from reports.answers.diagnosis import signatures
from reports.results.comparison import DifferenceKind, Nearness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reports.results.comparison import ComparedSets, Comparison, DeviceResult, Difference

NOTHING: Final = "No case ran on both a CPU and GPUs, on comparable version sets."
CAUTION: Final = (
    "Where torch differs, torch may be the reason instead of the device; the list says so if results of other sets "
    "support it and none contradict it. It also names the sets on which the other device shows the same result."
)
# Columns of the table of compared sets: the sets, how near they are, and the counts.
PAIR: Final = (
    *("on GPUs", "on the CPU", "nearness", "compared", "equal"),
    *("red only on GPUs", "red only on the CPU", "red on both, in different ways"),
)


def summary(comparison: Comparison) -> str:
    """Return the counts of compared, equal and different cells in one line."""
    if not comparison.pairs:
        return NOTHING
    kinds = ", ".join(f"{comparison.cells(kind)} {kind}" for kind in DifferenceKind)
    compared, alike = cells(comparison.total("compared")), comparison.total("alike")
    text = f"{compared} compared ({nearness(comparison)}): {alike} equal, {kinds}."
    by_torch = f" {comparison.of_torch} of the differences may come from torch instead of the device."
    return text + (by_torch if comparison.of_torch else "")


def cells(count: int) -> str:
    return counted(count, "cell")


def nearness(comparison: Comparison) -> str:
    """Return the number of compared cells for each degree of nearness, e.g. ``12 on the same lock``."""
    counts = {near: comparison.total("compared", near) for near in Nearness}
    return ", ".join(f"{count} on {near}" for near, count in counts.items() if count)


def left_out(comparison: Comparison) -> str:
    """Return the counts of cells that were not compared, and of compared cells with the same case code."""
    ran = (
        f"{cells(comparison.total('ran_on_gpu'))} ran on GPUs only, {comparison.total('ran_on_cpu')} on the CPU only, "
        f"{comparison.total('ran_on_neither')} on neither (skipped, blocked or lost)"
    )
    code = f"Of those compared, {comparison.total('same_code')} ran with the same case code on both"
    alone = f"{cells(comparison.alone)} on GPUs {'has' if comparison.alone == 1 else 'have'} no counterpart on the CPU"
    return f"Not compared: {ran}; {alone}. {code}."


def hardware(comparison: Comparison) -> str:
    """Return the hardware of both devices."""
    return "; ".join(
        dict.fromkeys(name for each in comparison.pairs for name in (each.cpu_hardware, each.gpu_hardware))
    )


def versions(pair: ComparedSets) -> str:
    """Return how near two sets are, and the versions that differ."""
    differing = (f"{name} {cpu} on the CPU, {gpu} on GPUs" for name, (cpu, gpu) in pair.differs.items())
    return "; ".join([pair.near, *differing])


def distance(difference: Difference) -> str:
    """Return how near the sets of a difference are, and if torch may be the reason for it."""
    return f"{difference.near}, which may be the reason" if difference.torch_too else difference.near


def counts(pair: ComparedSets) -> tuple[int, ...]:
    return pair.compared, pair.alike, pair.red_on_gpu, pair.red_on_cpu, pair.red_on_both


def shown(side: DeviceResult) -> str:
    """Return the verdict, with the cause of a red one."""
    return f"{side.verdict.value} ({side.cause})" if side.cause else side.verdict.value


def headlines(difference: Difference) -> tuple[str, str]:
    """Return the headlines of the first pair, on the CPU and on GPUs; the other pairs differ in numbers only."""
    return difference.sets[0].cpu_said, difference.sets[0].gpu_said


def notes(difference: Difference) -> str:
    """Return the evidence for a reason other than the device."""
    flaky = [each.gpu for each in difference.sets if each.flaky]
    parts = [
        *([f"the CPU shows the GPUs' result on {listed(difference.cpu_too)}"] if difference.cpu_too else []),
        *([f"GPUs show the CPU's result on {listed(difference.gpu_too)}"] if difference.gpu_too else []),
        *([f"flaky on {listed(flaky)}"] if flaky else []),
    ]
    return "; ".join(parts)


def causes(comparison: Comparison) -> dict[str, str]:
    """Return a sentence about each cause that a difference names."""
    named = {side.cause for each in comparison.differences for side in (each.cpu, each.gpu)}
    return {row.id: row.cause for row in signatures.load() if row.id in named}


def listed(keys: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(keys))


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the comparison for a terminal."""
    yield summary(comparison)
    if not comparison.pairs:
        return
    yield from (left_out(comparison), CAUTION, f"Measured: {hardware(comparison)}", "")
    for pair in comparison.pairs:
        yield f"{pair.gpu} compared with {pair.cpu}: {versions(pair)}"
        yield f"  {pair.compared} compared, {pair.alike} equal"
    for kind in DifferenceKind:
        for each in comparison.of(kind):
            yield from ("", f"{each.case}: {kind} ({distance(each)})", *difference_lines(each))
    if why := causes(comparison):
        yield from ("", "Causes:", *(f"  {name}: {sentence}" for name, sentence in why.items()))


def difference_lines(each: Difference) -> Iterator[str]:
    """Yield a difference, indented."""
    for name, side, words in zip(("CPU", "GPU"), (each.cpu, each.gpu), headlines(each), strict=True):
        yield f"  {name}: {shown(side)}" + (f": {words}" if words else "")
    yield f"  on {listed(f'{on.gpu} compared with {on.cpu}' for on in each.sets)}"
    if also := notes(each):
        yield f"  {also}"
