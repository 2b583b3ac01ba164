"""The flows of cases: their stages, each in fresh processes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cases.apply import attention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cases.apply.context import Context
    from cases.space.options import Options


def run(number: int, ctx: Context) -> None:
    with attention.force_back_end(ctx.options):
        function(ctx.options.flow, number)(ctx)


def numbered_stages(options: Options, *, continues: bool = False) -> list[tuple[int, int]]:
    """The stages of a case, each with its number of ranks. A case that another set began starts with the second."""
    numbered = [(number, ranks(options, number)) for number in range(len(FLOWS[options.flow]))]
    return numbered[1:] if continues else numbered


def ranks(options: Options, number: int) -> int:
    """The number of ranks: one for scripts and for reloading a full state, else the world size."""
    if options.flow == "script":
        return 1
    alone = number > 0 and options.flow in ("save_reload", "merge_reload") and options.state_dict_type != "sharded"
    return 1 if alone else options.world_size


FLOWS: Mapping[str, tuple[str, ...]] = {  # modules are imported by the ranks of a flow's own cells
    "load": ("flows.training.load",),
    "train": ("flows.training.train",),
    "save_reload": ("flows.round_trips.save", "flows.round_trips.reload"),
    "resume": ("flows.round_trips.interrupt", "flows.round_trips.resume"),
    "merge": ("flows.round_trips.merge",),
    "merge_reload": ("flows.round_trips.merge_and_save", "flows.round_trips.reload_merged"),
    "generate": ("flows.round_trips.generate",),
    "portability": ("flows.round_trips.save_for_another_set", "flows.round_trips.use_from_another_set"),
    "script": ("flows.scripts.run",),
    "api": ("api.run",),
}


def function(flow: str, number: int) -> Callable[[Context], None]:
    """The function of a stage."""
    module, _, name = FLOWS[flow][number].rpartition(".")
    found: Callable[[Context], None] = getattr(importlib.import_module(f"cases.{module}"), name)
    return found
