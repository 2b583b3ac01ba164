"""Words for the location of a deviation: the first module that left its tolerance, and the firsts of later passes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.model import tiny
from cases.space.verdict import shown
from reports.results.wording import plain

if TYPE_CHECKING:
    from matrix.run.outcome import DeviationRecord, LocationRecord

NOWHERE = "no module is off: every output, gradient and weight is within its tolerance"
SAME = "no module differs from that of"


def location_words(location: LocationRecord | None) -> str:
    """Return where a cell first deviates in one line; empty if nobody looked."""
    if location is None:
        return ""
    if not location.beginnings:
        return nowhere(location)
    begins = f"first unlike {plain(location.against)}" if location.against else "first off"
    return f"{begins}: {beginning_words(location.beginnings[0])}"


def nowhere(location: LocationRecord) -> str:
    return f"{SAME} {plain(location.against)}" if location.against else NOWHERE


def beginning_words(first: DeviationRecord) -> str:
    """Return a deviation in words: ``output of `lm_head`, step 1, rank 0``."""
    return plain(", ".join(filter(None, (tensor_words(first), step_words(first), f"rank {first.rank}"))))


def tensor_words(first: DeviationRecord) -> str:
    return function_words(first) if first.function else module_words(first)


def function_words(first: DeviationRecord) -> str:
    """A function with the module that runs it, or with the first module that differs if none does."""
    file, _, name = first.function.partition(" ")
    where = f"`{name}` of {file}"
    inside = f" in `{first.module}`" if first.module else ""
    if first.kind == "error":
        return f"an error in {where}{inside}"
    return f"{where}{inside}" if first.kind == "function" else f"{where}, then {module_words(first)}"


def module_words(first: DeviationRecord) -> str:
    if first.kind == "batch":
        return "rows of the batch, which are not those of the step"
    if first.kind == "error":
        return f"an error in `{first.name}`" if first.name else "an error outside of modules"
    if first.kind == "call":
        return f"calls in `{first.module}`, of `{first.name}`" if first.module else f"a call of `{first.name}`"
    if first.kind == "input":
        return f"input of `{first.name}`" + (f", computed in `{first.module}`" if first.module else "")
    of = {"output": "output of", "gradient": "gradient of the output of", "weight gradient": "gradient of"}
    return f"{of.get(first.kind, first.kind)} `{first.name}`"


def step_words(first: DeviationRecord) -> str:
    if not first.step:  # without a reference
        return ""
    if first.step > tiny.STEPS:
        return "in evaluation"
    return f"from step {first.step} on" if first.kind == "weight" else f"step {first.step}"


def distance_words(first: DeviationRecord) -> str:
    """Return how far a tensor is off; empty where something other than its numbers differs."""
    if not math.isfinite(first.distance):
        return ""
    return f": differs by {shown(first.distance)} (allowed: {shown(first.allowed)})"


def location_details(location: LocationRecord | None) -> dict[str, Any]:
    """Return the data of a page's dialog: one line for each pass, and both curves."""
    if location is None:
        return {}
    lines = [
        f"{beginning_words(each)}{distance_words(each)}" + (f", after {plain(each.after)}" if each.after else "")
        for each in location.beginnings
    ]
    modules = dict.fromkeys([*location.outputs, *location.gradients])
    rows = [[name, location.outputs.get(name), location.gradients.get(name)] for name in modules]
    return {"location": {"lines": lines or [nowhere(location)], "modules": rows}}
