"""The flows: what a case does, act by act, each act in fresh processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases import api
from cases.apply import attention, build, front_ends, training
from cases.checks.engagement import Witness
from cases.flows import round_trips, scripts
from cases.model import architectures, tiny
from cases.reference import tolerance
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cases.apply.context import Setting
    from cases.space.case import Case
    from cases.space.options import Options

    Act = Callable[[Setting], None]


def run(act: int, here: Setting) -> None:
    with attention.forced(here.options):
        FLOWS[here.options.flow][act](here)


def acts(case: Case) -> list[tuple[int, int]]:
    """The acts of a case, each with its number of ranks. What another set has begun begins with the second."""
    numbered = [(act, ranks(case.options, act)) for act in range(len(FLOWS[case.options.flow]))]
    return numbered[1:] if case.source else numbered


def ranks(options: Options, act: int) -> int:
    """As many as the world; what was saved whole is looked at by one process, and a script starts its own."""
    if options.flow == "script":
        return 1
    alone = act > 0 and options.flow in ("save_reload", "merge_reload") and options.state_dict != "sharded"
    return 1 if alone else options.world_size


def load(here: Setting) -> None:
    """Load the checkpoint and compare the logits of one batch with the twin's."""
    import torch

    options, place, say = here.options, here.place, here.say
    say.phase(Phase.LOAD)
    model = build.load(options, place, here.cache)
    seen = Witness(options, place)
    seen.before_wrap(model)
    quantised = training.quantisation_checks(model, options)
    say.phase(Phase.FORWARD)
    with torch.no_grad():
        ids = tiny.batch(0, architectures.vocabulary(options)).to(place.device)
        logits: Any = model.eval()(**architectures.inputs(ids, options)).logits
    with say.observing():
        found = tolerance.inference(logits.float().cpu(), here.twin().logits, options)
        say.checks([*seen.checks(), *quantised, *found])


def train(here: Setting) -> None:
    """Train a few steps on this rank's shard, and compare the trajectory with the twin's on the whole batch."""
    job = front_ends.prepare(here)
    front_ends.steps(job, range(tiny.STEPS))
    with here.say.observing():
        here.say.checks(training.checks(job))


FLOWS: Mapping[str, tuple[Act, ...]] = {
    "load": (load,),
    "train": (train,),
    "save_reload": (round_trips.save, round_trips.reload),
    "resume": (round_trips.interrupt, round_trips.resume),
    "merge": (round_trips.merge,),
    "merge_reload": (round_trips.merge_and_save, round_trips.reload_merged),
    "generate": (round_trips.generate,),
    "portability": (round_trips.carry, round_trips.use),
    "script": (scripts.run,),
    "api": (api.run,),
}
