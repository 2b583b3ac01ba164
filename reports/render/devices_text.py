"""Where a CPU and GPUs differ in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reports.answers.diagnosis import signatures
from reports.results.comparison import DifferenceKind, Nearness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reports.results.comparison import ComparedSets, Comparison, DeviceResult, Difference

NOTHING: Final = "Nothing ran on both a CPU and GPUs, on sets that are near."
CAUTION: Final = (
    "Where torch is not the same, it may be why, and not the device: this is said where results of other sets speak "
    "for it and none against it. What a device shows too, with other versions, stands beside a difference."
)
# the columns of a table of pairs: the sets, how near they are, and the counts
PAIR: Final = (
    *("on GPUs", "on the CPU", "how near", "compared", "alike"),
    *("red only on GPUs", "red only on the CPU", "red on both, in different ways"),
)


def summary(found: Comparison) -> str:
    """How many pairs of cells were compared, and what came out, in one line."""
    if not found.pairs:
        return NOTHING
    kinds = ", ".join(f"{found.cells(kind)} {kind}" for kind in DifferenceKind)
    told = f"{cells(found.total('compared'))} compared ({nearness(found)}): {found.total('alike')} alike, {kinds}."
    return told + (
        f" {found.of_torch} of those that differ may differ by torch and not by the device." if found.of_torch else ""
    )


def cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def nearness(found: Comparison) -> str:
    """How many of the compared cells are how near, e.g. ``12 on the same lock``."""
    counts = {near: found.total("compared", near) for near in Nearness}
    return ", ".join(f"{count} on {near}" for near, count in counts.items() if count)


def left_out(found: Comparison) -> str:
    """What could not be compared, in one line, with how much of the rest ran with the same case code."""
    ran = (
        f"{cells(found.total('ran_on_gpu'))} ran on GPUs only, {found.total('ran_on_cpu')} on the CPU only, "
        f"{found.total('ran_on_neither')} on neither (skipped, blocked or lost)"
    )
    code = f"Of those compared, {found.total('same_code')} ran with the same case code on both"
    return f"Not compared: {ran}; {found.alone} on GPUs have no counterpart here on a near set of the CPU. {code}."


def hardware(found: Comparison) -> str:
    """The machines of both."""
    return "; ".join(dict.fromkeys(name for each in found.pairs for name in (each.cpu_hardware, each.gpu_hardware)))


def versions(pair: ComparedSets) -> str:
    """How near two sets are, with the versions that differ: on the CPU, and on GPUs."""
    told = (f"{name} {cpu} on the CPU, {gpu} on GPUs" for name, (cpu, gpu) in pair.differs.items())
    return "; ".join([pair.near, *told])


def distance(difference: Difference) -> str:
    """How near the sets of a difference are, and whether what is not the same may be why."""
    return f"{difference.near}, which may be why" if difference.torch_too else difference.near


def counts(pair: ComparedSets) -> tuple[int, ...]:
    return pair.compared, pair.alike, pair.red_on_gpu, pair.red_on_cpu, pair.red_on_both


def shown(side: DeviceResult) -> str:
    """The verdict, and the cause of what is red."""
    return f"{side.verdict.value} ({side.cause})" if side.cause else side.verdict.value


def said(difference: Difference) -> tuple[str, str]:
    """What the first of the pairs said, on the CPU and on GPUs; in the others only numbers differ."""
    return difference.sets[0].cpu_said, difference.sets[0].gpu_said


def beside(difference: Difference) -> str:
    """What speaks for another reason than the device."""
    flaky = [each.gpu for each in difference.sets if each.flaky]
    parts = [
        *([f"the CPU shows what GPUs do here on {listed(difference.cpu_too)}"] if difference.cpu_too else []),
        *([f"GPUs show what the CPU does here on {listed(difference.gpu_too)}"] if difference.gpu_too else []),
        *([f"flaky on {listed(flaky)}"] if flaky else []),
    ]
    return "; ".join(parts)


def causes(found: Comparison) -> dict[str, str]:
    """Why, in a sentence, of each cause that is named."""
    named = {side.cause for each in found.differences for side in (each.cpu, each.gpu)}
    return {row.id: row.cause for row in signatures.load() if row.id in named}


def listed(keys: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(keys))


def lines(found: Comparison) -> Iterator[str]:
    """For a terminal."""
    yield summary(found)
    if not found.pairs:
        return
    yield from (left_out(found), CAUTION, f"Measured: {hardware(found)}", "")
    for pair in found.pairs:
        yield f"{pair.gpu} beside {pair.cpu}: {versions(pair)}"
        yield f"  {pair.compared} compared, {pair.alike} alike"
    for kind in DifferenceKind:
        for each in found.of(kind):
            yield from ("", f"{each.case}: {kind} ({distance(each)})", *told(each))
    if why := causes(found):
        yield from ("", "Causes:", *(f"  {name}: {sentence}" for name, sentence in why.items()))


def told(each: Difference) -> Iterator[str]:
    """A difference, indented."""
    for name, side, words in zip(("CPU", "GPU"), (each.cpu, each.gpu), said(each), strict=True):
        yield f"  {name}: {shown(side)}" + (f": {words}" if words else "")
    yield f"  on {listed(f'{on.gpu} beside {on.cpu}' for on in each.sets)}"
    if also := beside(each):
        yield f"  {also}"
