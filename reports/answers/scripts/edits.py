"""A fix as what a user edits: the files of a training before and after it, as unified diffs.

The script says what the case runs, in the order in which it runs it and as the versions beside it spell it; beside it
stands the configuration of accelerate that asks for the same, where it has a key for all of it. Of the requirements
those are named that the set pins; what was resolved for them is in the set's lock.
"""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from cases import api
from matrix.keys import CellKey
from matrix.search import neighbours
from matrix.search.fixes import Kind
from reports.answers.scripts import accelerate_config, user_script
from reports.results import wording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.case import Case
    from cases.space.options import Options
    from matrix.search.fixes import Change, Fix
    from reports.answers.fixes.remedies import Remedy

CONTEXT: Final = 2  # lines around a change


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a user has: versions, of Python too, settings, and the key of the set that the rest was resolved for."""

    pins: Mapping[str, str]
    options: Options
    set: str


def told(remedy: Remedy, before: Stack, after: Options) -> str:
    """A fix in words, with what shows that it is one and where it was measured, and its edit."""
    fix = remedy.fix
    cell, device = str(CellKey(fix.set, fix.case)), wording.device(remedy.found)
    if fix.kind is Kind.NONE:
        return f"{cell}\nNo fix was found on {device}, {remedy.where} ({fix.within})."
    lines = [
        cell,
        f"{'; '.join([MEANING[fix.kind], *cost(fix)])}: {changes(fix)}.",
        f"Measured on {device}: {remedy.proof}.",
        witnessed(fix, cell),
        diff(before, with_changes(before, fix, after)),
    ]
    return "\n".join(line for line in lines if line)


MEANING: Final = {
    Kind.SETTINGS: "Settings; method, quantisation, strategy, and precision of base and computation stay",
    Kind.VERSIONS: "Other versions of the same",
    Kind.ALTERNATIVE: "An alternative, which gives up part of what was wanted",
}


# Of settings, those that a user who counts digits wants to hear of.
COSTS: Final = {
    "bnb_4bit_use_double_quant": "double quantisation does not",
    "autocast_adapter_dtype": "the dtype of the adapters does not",
    "mixed_precision": "FSDP's mixed precision does not",
}


def cost(fix: Fix) -> list[str]:
    """Beside what stays, what does not."""
    return [COSTS[each.name] for each in fix.changes if fix.kind is Kind.SETTINGS and each.name in COSTS]


def changes(fix: Fix) -> str:
    """All that changes; packages that are not pinned may move with those that are."""
    named = ", ".join(map(said, fix.changes))
    return f"{named}, with what was resolved for {fix.to_set}" if fix.kind is Kind.VERSIONS else named


def said(change: Change) -> str:
    """One change; of a package that one side does not pin, no version."""
    new = f"{change.name} unpinned" if change.new == "" else f"{change.name}={change.new}"  # False and 0 are values
    return f"{new} instead of {'unpinned' if change.old == '' else change.old}"


def witnessed(fix: Fix, cell: str) -> str:
    """What is known of the cell with all changes but one."""
    red = [witness for witness in fix.witnesses if witness not in (cell, *fix.blocked)]
    lines = [
        f"Red with all of these changes but one: {', '.join(red)}." if red else "",
        f"Cannot be resolved or installed with all but one: {', '.join(fix.blocked)}." if fix.blocked else "",
        "" if red or fix.blocked else "Red without it, in every run.",
        "" if fix.minimal else "Not every change was left out in turn: there may be a shorter way.",
    ]
    return " ".join(filter(None, lines))


def reached(fix: Fix, red: Options, cases: Mapping[str, Case]) -> Options:
    """The options of the green cell; ``cases`` are those of the grid, beside which it may lie."""
    if fix.kind not in (Kind.ALTERNATIVE, Kind.SETTINGS):
        return red
    if fix.to_case in cases:
        return cases[fix.to_case].options
    return neighbours.moved(red, {each.name: each.new for each in fix.changes}) or red


def with_changes(before: Stack, fix: Fix, after: Options) -> Stack:
    moved = {each.name: str(each.new) for each in fix.changes} if fix.kind is Kind.VERSIONS else {}
    pins = {name: version for name, version in {**before.pins, **moved}.items() if version}
    return Stack(pins=pins, options=after, set=fix.to_set)


def diff(before: Stack, after: Stack) -> str:
    """What changes in each file; empty if nothing does."""
    one, other = files(before, beside=after), files(after, beside=before)
    return "\n".join(
        "\n".join(unified_diff(one[name], other[name], f"a/{name}", f"b/{name}", lineterm="", n=CONTEXT))
        for name in one
        if name in other and one[name] != other[name]
    )


def files(stack: Stack, *, beside: Stack | None = None) -> dict[str, list[str]]:
    """The lines of each file by its name; what goes by one name on both sides is called so."""
    options = stack.options
    rest = f"# the rest: as resolved for {stack.set}"
    found = {"requirements.txt": [*map(requirement, stack.pins, stack.pins.values()), rest]}
    if options.call:
        return found | ({"use.py": use(options.call)} if options.call in api.load() else {})
    found["train.py"] = user_script.lines(options, user_script.Api(stack.pins, (beside or stack).pins))
    if options.strategy != "single":
        found["launch.sh"] = [f"torchrun --nproc-per-node {options.world_size} train.py"]
    if accelerate_config.says(options):
        found["accelerate.yaml"] = accelerate_config.lines(options)
    return found


def requirement(name: str, version: str) -> str:
    return f"# Python {version}" if name == "python" else f"{name}=={version}"


def use(name: str) -> list[str]:
    """The function that makes this use of the interface."""
    lines = textwrap.dedent(inspect.getsource(api.load()[name].body)).splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("def ")) :]
