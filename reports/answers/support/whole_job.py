"""Adds to a query what its job includes without a word: saving what was trained, loading it again, and resuming.

A query that names a flow is about that flow alone; ``flow=train`` asks for training alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.space import options
from reports.answers.judgement.facts import FLOWS
from reports.answers.judgement.flows import WORDS
from reports.answers.support.query import ALWAYS_STATED, GOALS, Query, possible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.known.conditions import Facts, Value

IMPLIED: Final = ("save_reload", "resume")
USUAL_MEANS: Final = ("auto_wrap_policy", "state_dict_type", "use_orig_params", "sharding_strategy")
KEPT: Final = (*ALWAYS_STATED, "model", "embeddings", "modules_to_save", "target_embeddings", "prequantised")


def implied(query: Query) -> tuple[Query, ...]:
    """Return the queries of what follows training, with the goal of the given one; none if it names a flow."""
    if query.patterns or not {"flow", "call"}.isdisjoint(query.named):
        return ()
    goal = {name: values for name, values in query.named.items() if name in KEPT}
    later = (Query(text=f"{query.text}, {WORDS[flow]}", named={**goal, "flow": (flow,)}) for flow in IMPLIED)
    return tuple(each for each in later if possible(each))


def facts_of(query: Query, settings: Mapping[str, Value], *, device: str) -> Facts:
    """Return the facts that a query states or implies, with the settings that an answer adds.

    What the query leaves free, apart from goals and usual means, is unknown.
    """
    known: dict[str, Value] = {"device": device}
    for name in options.names():
        values = query.plain(name)
        if len(values) == 1 and name not in ("flow", "call", "world_size") and is_stated(query, name):
            known[name] = values[0]
    known |= {name: value for name, value in settings.items() if name not in ("flow", "call", "world_size")}
    if "strategy" in known:
        known["ranks"] = "one" if known["strategy"] == "single" else "several"
    known |= dict(of_flows(query))
    if "gradient_accumulation_steps" in settings:
        known["accumulates"] = int(settings["gradient_accumulation_steps"]) > 1
    elif "gradient_accumulation_steps" in query.named:
        known["accumulates"] = min(map(int, query.named["gradient_accumulation_steps"])) > 1
    return known


def is_stated(query: Query, name: str) -> bool:
    """Tell if a query fixes an option: by name, as a goal, or as a means with its usual value unless it is named."""
    return name in query.named or name in GOALS or name in USUAL_MEANS


def of_flows(query: Query) -> Iterator[tuple[str, bool]]:
    flows = query.named.get("flow", () if query.patterns else ("train", *IMPLIED))
    for fact, names in FLOWS.items():
        if set(flows) & set(names):
            yield fact, True
        elif "flow" in query.named:
            yield fact, False
