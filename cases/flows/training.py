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
    from cases.apply.context import Context


def load(ctx: Context) -> None:
    """Load the checkpoint and compare the logits of one batch with the twin's."""
    import torch

    options, place, reporter = ctx.options, ctx.place, ctx.reporter
    reporter.phase(Phase.LOAD)
    model = build.load(options, place, ctx.cache)
    recorder = EngagementRecorder(options, place)
    recorder.before_wrap(model)
    quantised = training.quantisation_checks(model, options)
    ctx.record_modules(model, lambda: model)
    reporter.phase(Phase.FORWARD)
    with torch.no_grad():
        ids = tiny.batch(0, architectures.vocabulary(options)).to(place.device)
        logits: Any = model.eval()(**architectures.inputs(ids, options)).logits
    with reporter.observing():
        found = tolerance.inference(logits.float().cpu(), ctx.twin(), options)
        reporter.checks([*evidence.checks(recorder), *quantised, *found])


def train(ctx: Context) -> None:
    """Train a few steps on this rank's shard, and compare the trajectory with the twin's on the whole batch."""
    job = front_ends.prepare(ctx)
    front_ends.steps(job, range(tiny.STEPS))
    with ctx.reporter.observing():
        ctx.reporter.checks(training.checks(job))
