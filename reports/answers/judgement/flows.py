"""Names the parts of a job: training, and what comes after it, as far as the job requests it or usually has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cases.space.options import IllegalError, Options

if TYPE_CHECKING:
    from collections.abc import Mapping

TRAIN: Final = "train"
NO: Final = (None, False, "no", "none", "")
# Arguments of the trainer that request a part of the job.
REQUESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "resume": ("resume_from_checkpoint", "load_best_model_at_end", "auto_resume_from_checkpoints"),
    "merge": ("merge", "merge_lora", "merge_and_unload"),
    "generate": ("generate", "predict_with_generate", "do_predict"),
}
WORDS: Final[Mapping[str, str]] = {
    TRAIN: "training",
    "load": "loading",
    "save_reload": "saving and loading again",
    "resume": "resuming",
    "merge": "merging",
    "merge_reload": "merging and loading again",
    "generate": "generating",
    "portability": "moving the adapter to another version",
}


@dataclass(frozen=True, kw_only=True)
class JobFlows:
    """The flows of a job: the certain ones, and those that its user may add without a word in a configuration."""

    certain: tuple[str, ...] = (TRAIN, "save_reload")
    possible: tuple[str, ...] = ("resume",)


def flows_of(arguments: Mapping[str, Any]) -> JobFlows:
    """Return the flows that a trainer's arguments request. A job saves what it trained unless they deny it."""
    saves = "save_strategy" not in arguments or arguments["save_strategy"] not in NO
    requested = {flow for flow, names in REQUESTS.items() if any(arguments.get(name) not in NO for name in names)}
    certain = (TRAIN, *(("save_reload",) if saves else ()), *(each for each in REQUESTS if each in requested))
    merged = ("merge_reload",) if "merge" in requested else ()
    return JobFlows(certain=(*certain, *merged), possible=("resume",) if saves and "resume" not in requested else ())


def in_flow(options: Options, flow: str) -> Options | None:
    """Return the options of a job in one of its flows; None if the option space has no such case.

    Merges and generations happen outside the trainer, after the training loop.
    """
    for changes in ({}, {"front_end": "loop"}, {"front_end": "loop", "loop": "plain"}):
        try:
            return options.but(flow=flow, world_size=options.world_size, **changes)
        except IllegalError:
            continue
    return None
