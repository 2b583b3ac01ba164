"""Prints a fix as edits: unified diffs of the files of a training before and after it.

The files are the script that makes the calls of the case, in the spelling of the versions, its launch command, the
configuration of accelerate that requests the same (if accelerate has keys for it), and the requirements that the set
pins. The set's lock has what was resolved for these.
"""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Final, Protocol

from cases import api
from matrix.keys import CellKey
from matrix.search import neighbours
from matrix.search.fixes import Kind
from reports.answers.scripts import accelerate_config, user_script
from reports.answers.scripts.calls import ApiVersions
from reports.results import wording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.case import Case
    from cases.space.options import Options
    from matrix.search.fixes import Change, Fix, Fixes

CONTEXT: Final = 2  # lines around a change


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The versions, Python's too, and settings of a user, and the key of the set whose lock has the other packages."""

    pins: Mapping[str, str]
    options: Options
    set: str


class SearchResult(Protocol):
    """The stored result of a fix search for one cell, with the place and the proof in words."""

    @property
    def fix(self) -> Fix: ...

    @property
    def found(self) -> Fixes: ...

    @property
    def where(self) -> str: ...

    @property
    def proof(self) -> str: ...


def fix_text(remedy: SearchResult, before: Stack, after: Options) -> str:
    """A fix in words, with its evidence and its edit."""
    fix = remedy.fix
    cell, device = str(CellKey(fix.set, fix.case)), wording.device(remedy.found)
    if fix.kind is Kind.NONE:
        return f"{cell}\nNo fix found on {device}, {remedy.where} ({fix.within})."
    lines = [
        cell,
        f"{'; '.join([MEANINGS[fix.kind], *cost(fix)])}: {changes(fix)}.",
        f"Measured on {device}: {remedy.proof}.",
        evidence(fix, cell),
        diff(before, with_changes(before, fix, after)),
    ]
    return "\n".join(line for line in lines if line)


MEANINGS: Final = {
    Kind.SETTINGS: "Settings; method, quantisation, strategy, and precision of base and computation stay",
    Kind.VERSIONS: "Other versions",
    Kind.ALTERNATIVE: "An alternative, which gives up part of the request",
}


# Settings whose change costs precision.
COSTS: Final = {
    "bnb_4bit_use_double_quant": "double quantisation does not",
    "autocast_adapter_dtype": "the dtype of the adapters does not",
    "mixed_precision": "FSDP's mixed precision does not",
}


def cost(fix: Fix) -> list[str]:
    """Words for the precision that a fix gives up."""
    return [COSTS[each.name] for each in fix.changes if fix.kind is Kind.SETTINGS and each.name in COSTS]


def changes(fix: Fix) -> str:
    """All changes. Packages that the set does not pin may move with those that it pins."""
    named = ", ".join(map(change_text, fix.changes))
    return f"{named}, with what was resolved for {fix.to_set}" if fix.kind is Kind.VERSIONS else named


def change_text(change: Change) -> str:
    """One change; a package may be unpinned on one side."""
    new = f"{change.name} unpinned" if change.new == "" else f"{change.name}={change.new}"  # False and 0 are values
    return f"{new} instead of {'unpinned' if change.old == '' else change.old}"


def evidence(fix: Fix, cell: str) -> str:
    """The results of the cell with all changes but one."""
    red = [witness for witness in fix.witnesses if witness not in (cell, *fix.blocked)]
    lines = [
        f"Red with all of these changes but one: {', '.join(red)}." if red else "",
        f"Cannot be resolved or installed with all but one: {', '.join(fix.blocked)}." if fix.blocked else "",
        "" if red or fix.blocked else "Red without it, in every run.",
        "" if fix.minimal else "The search did not leave out every change in turn, so a shorter fix may exist.",
    ]
    return " ".join(filter(None, lines))


def options_after(fix: Fix, red: Options, cases: Mapping[str, Case]) -> Options:
    """The options of the green cell, which need not be one of ``cases``."""
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
    """The unified diff of each file that changes."""
    old, new = files(before, other=after), files(after, other=before)
    return "\n".join(
        "\n".join(unified_diff(old[name], new[name], f"a/{name}", f"b/{name}", lineterm="", n=CONTEXT))
        for name in old
        if name in new and old[name] != new[name]
    )


def files(stack: Stack, *, other: Stack | None = None) -> dict[str, list[str]]:
    """The lines of each file, by its name. Both stacks use names of arguments that both know."""
    options = stack.options
    rest = f"# other packages: the lock of {stack.set}"
    changes = {"requirements.txt": [*map(requirement, stack.pins, stack.pins.values()), rest]}
    if options.call:
        return changes | ({"use.py": function_source(options.call)} if options.call in api.load() else {})
    changes["train.py"] = user_script.lines(options, ApiVersions(stack.pins, (other or stack).pins))
    if options.strategy != "single":
        changes["launch.sh"] = [f"torchrun --nproc-per-node {options.world_size} train.py"]
    if configuration := accelerate_config.lines(options):
        changes["accelerate.yaml"] = configuration
    return changes


def requirement(name: str, version: str) -> str:
    return f"# Python {version}" if name == "python" else f"{name}=={version}"


def function_source(name: str) -> list[str]:
    """The source of the function that makes this API call."""
    lines = textwrap.dedent(inspect.getsource(api.load()[name].body)).splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("def ")) :]
