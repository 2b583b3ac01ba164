"""A fix as what a user edits: the files of a training before and after it, as unified diffs.

Both sides are whole and valid. The script says what the case runs, in the order in which it runs it; beside it stands
the configuration of accelerate that asks for the same, where it has a key for all of it.
"""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from cases import api
from matrix import neighbours
from matrix.fixes import Kind
from reports.answers import accelerate_config, user_script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.case import Case
    from cases.options import Options
    from matrix.fixes import Change, Fix

CONTEXT: Final = 2  # lines around a change
RENAMED: Final = Version("4.56")  # of transformers, which calls torch_dtype dtype since then, and knows both


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a user has: versions, of Python too, and settings."""

    pins: Mapping[str, str]
    options: Options


def told(fix: Fix, before: Stack, after: Options) -> str:
    """A fix in words, with what shows that it is one, and its edit."""
    cell = f"{fix.set}__{fix.case}"
    if fix.kind is Kind.NONE:
        return f"{cell}\nNo fix within what was tried: {fix.within}."
    lines = [
        cell,
        f"{MEANING[fix.kind]}: {'; '.join(map(change, fix.changes))}.",
        f"Green in {fix.runs} runs: {fix.to_set}__{fix.to_case}.",
        witnessed(fix, cell),
        diff(before, with_changes(before, fix, after)),
    ]
    return "\n".join(line for line in lines if line)


MEANING: Final = {
    Kind.SETTINGS: "A setting, and all that was wanted stays",
    Kind.VERSIONS: "Other versions of the same",
    Kind.ALTERNATIVE: "An alternative, which gives up part of what was wanted",
}


def change(each: Change) -> str:
    return f"{each.name} {shown(each.old)} -> {shown(each.new)}"


def shown(value: object) -> str:
    return "unpinned" if value == "" else str(value)  # False and 0 are values


def witnessed(fix: Fix, cell: str) -> str:
    others = [witness for witness in fix.witnesses if witness != cell]
    red = f"Red without any one of these changes: {', '.join(others)}." if others else "Red in 2 runs without it."
    return red if fix.minimal else f"{red} Not every change was left out in turn: there may be a shorter way."


def reached(fix: Fix, red: Options, cases: Mapping[str, Case]) -> Options:
    """The options of the green cell; ``cases`` are those of the grid, beside which it may lie."""
    if fix.kind not in (Kind.ALTERNATIVE, Kind.SETTINGS):
        return red
    if fix.to_case in cases:
        return cases[fix.to_case].options
    return neighbours.moved(red, {each.name: each.new for each in fix.changes}) or red


def with_changes(before: Stack, fix: Fix, after: Options) -> Stack:
    moved = {each.name: str(each.new) for each in fix.changes} if fix.kind is Kind.VERSIONS else {}
    return Stack(pins={name: version for name, version in {**before.pins, **moved}.items() if version}, options=after)


def diff(before: Stack, after: Stack) -> str:
    """What changes in each file; empty if nothing does."""
    renamed = all(Version(each.pins["transformers"]) >= RENAMED for each in (before, after))
    one, other = (files(each, dtype="dtype" if renamed else "torch_dtype") for each in (before, after))
    return "\n".join(
        "\n".join(unified_diff(one[name], other[name], f"a/{name}", f"b/{name}", lineterm="", n=CONTEXT))
        for name in one
        if name in other and one[name] != other[name]
    )


def files(stack: Stack, *, dtype: str = "dtype") -> dict[str, list[str]]:
    """The lines of each file by its name; ``dtype`` is what ``from_pretrained`` calls it."""
    options = stack.options
    found = {"requirements.txt": list(map(requirement, stack.pins, stack.pins.values()))}
    if options.call:
        return found | ({"use.py": use(options.call)} if options.call in api.load() else {})
    found["train.py"] = user_script.lines(options, dtype=dtype)
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
