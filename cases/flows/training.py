"""The flows of one stage: load a checkpoint, or train a few steps, and compare with the twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.apply import build, front_ends, training
from cases.checks.engagement import evidence
from cases.checks.engagement.recorder import EngagementRecorder
from cases.model import architectures, tiny
from cases.reference import tolerance
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from cases.apply.context import Setting


def load(here: Setting) -> None:
    """Load the checkpoint and compare the logits of one batch with the twin's."""
    import torch

    options, place, say = here.options, here.place, here.say
    say.phase(Phase.LOAD)
    model = build.load(options, place, here.cache)
    recorder = EngagementRecorder(options, place)
    recorder.before_wrap(model)
    quantised = training.quantisation_checks(model, options)
    say.phase(Phase.FORWARD)
    with torch.no_grad():
        ids = tiny.batch(0, architectures.vocabulary(options)).to(place.device)
        logits: Any = model.eval()(**architectures.inputs(ids, options)).logits
    with say.observing():
        found = tolerance.inference(logits.float().cpu(), here.twin().logits, options)
        say.checks([*evidence.checks(recorder), *quantised, *found])


def train(here: Setting) -> None:
    """Train a few steps on this rank's shard, and compare the trajectory with the twin's on the whole batch."""
    job = front_ends.prepare(here)
    front_ends.steps(job, range(tiny.STEPS))
    with here.say.observing():
        here.say.checks(training.checks(job))
