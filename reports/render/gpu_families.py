"""Draws the section of ``gpu_matrix.md`` on the families of failures: red cells on GPUs, and cells green with a fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.versions.sets import PACKAGES
from reports.answers.devices import families
from reports.render.markdown import code, codes, table, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reports.answers.devices.families import CaseOnGpus, FamilyOnGpus
    from reports.results.grid import Grid

NOT_MEASURED: Final = "not measured on a GPU"


def section(everywhere: Grid) -> str:
    """Return the section as Markdown, of every set that ran on GPUs."""
    found = families.on_gpus(everywhere)
    named = families.stacks(found, everywhere)
    keys = tuple(each.key for each in named)
    parts = ["## Families of failures", introduction(found), *(family(each, keys) for each in found)]
    if named:
        rows = [(code(each.key), *(text(each.pins.get(name, "")) for name in PACKAGES)) for each in named]
        parts += ["### Versions of these sets", table(("set", *PACKAGES), rows)]
    return "\n" + "\n\n".join(parts) + "\n"


def introduction(found: Sequence[FamilyOnGpus]) -> str:
    shown = [each for each in found if any(case.as_said for case in each.red)]
    both = sum(bool(each.both) for each in shown)
    return (
        f"The {counted(len(found), 'family', 'families')} of [known problems](known_problems.md) on all sets that ran "
        f"on GPUs, also those with the torch of their host: {len(shown)} red with the error, {both} of these with a "
        "cell that is green with a fix on the same set. `18 of 21`: as expected on 18 of the 21 sets that ran the case."
    )


def family(each: FamilyOnGpus, keys: Sequence[str]) -> str:
    body = table(("case", "expected", "as expected", "on"), cells(each, keys))
    both = f"{counted(len(each.both), 'set')}: {which(each.both, keys)}" if each.both else "no set"
    return f"### {text(each.title)}\n\n{body}\n\nRed, and green with a fix, on {both}."


def cells(each: FamilyOnGpus, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield from ((code(case.case), "red with the error", *result(case, keys)) for case in each.red)
    yield from ((code(case.case), f"green: {text(case.because)}", *result(case, keys)) for case in each.green)


def result(case: CaseOnGpus, keys: Sequence[str]) -> tuple[str, str]:
    if not case.measured:
        return NOT_MEASURED, ""
    return f"{len(case.as_said)} of {len(case.measured)}", which(case.as_said, keys)


def which(some: Sequence[str], keys: Sequence[str]) -> str:
    """Name some of the sets, by those that are left out if these are fewer."""
    left_out = [key for key in keys if key not in some]
    if len(some) <= len(left_out):
        return codes(some)
    return "all sets" + (f" but {codes(left_out)}" if left_out else "")
