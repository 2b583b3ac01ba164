"""States the facts of a job, by which the conditions of known errors are judged (see ``matrix.known.conditions``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cases.space import options as space
from matrix.known.conditions import ARGUMENTS
from reports.answers.judgement.flows import NO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Options
    from matrix.known.conditions import Facts, Value
    from reports.answers.judgement.flows import JobFlows

NOT_FACTS: Final = ("flow", "call", "world_size", "loop")
EVALUATIONS: Final = ("eval_strategy", "evaluation_strategy", "do_eval", "eval_steps", "load_best_model_at_end")
# The flows by the fact that states them.
FLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    "saves": ("save_reload", "portability"),
    "resumes": ("resume",),
    "merges": ("merge", "merge_reload"),
    "generates": ("generate",),
}


def facts_of(
    options: Options,
    flows: JobFlows,
    *,
    device: str,
    arguments: Mapping[str, Any] | None = None,
    trainer: str = "",
) -> Facts:
    """Return the facts of a job. What it may do later stays unknown."""
    known: dict[str, Value] = {name: getattr(options, name) for name in space.names() if name not in NOT_FACTS}
    known["ranks"] = "one" if options.strategy == "single" else "several"
    known["device"] = device
    known["accumulates"] = options.gradient_accumulation_steps > 1
    known["trainer"] = trainer or "other"
    stated = arguments or {}
    if options.front_end in ("trainer", "sft") or options.loop != "plain":
        known["evaluates"] = options.loop != "plain" or any(stated.get(name) not in NO for name in EVALUATIONS)
    known |= {fact: True for fact, names in FLOWS.items() if set(names) & set(flows.certain)}
    if "saves" not in known:
        known["saves"] = False
    return known | {
        f"{ARGUMENTS}{name}": value for name, value in stated.items() if isinstance(value, int | float | str)
    }
