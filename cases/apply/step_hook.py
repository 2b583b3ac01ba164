"""Records each step of a front end that runs its own loop, just before its optimiser steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.apply import training
from cases.checks import observers
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from cases.apply.training import Trainee


@dataclass
class StepHook:
    """``shares`` are the losses of the present step's batches so far; their sum is the step's loss."""

    job: Trainee
    shares: list[Any] = field(default_factory=list)

    def model(self, model: Any) -> None:
        """Report phases from the model's hooks, as the front end runs the loop."""
        reporter = self.job.ctx.reporter
        model.register_forward_pre_hook(lambda *_: reporter.phase(Phase.FORWARD))
        model.register_forward_hook(lambda *_: reporter.phase(Phase.BACKWARD) if model.training else None)

    def optimiser(self, optimiser: Any) -> None:
        """Record the steps of torch's optimiser, which the front end may wrap later."""
        self.job.recorder.watch(optimiser)
        optimiser.register_step_pre_hook(self.before_step)

    def loss(self, loss: Any, share: float = 1.0) -> None:
        """A batch was trained on, backward pass and all; ``share`` is how much its loss counts in the step's."""
        with self.job.ctx.reporter.observing():
            self.job.recorder.after_forward(loss)
            self.shares.append(loss.detach().float() * share)
            self.job.recorder.after_micro_batch(last=len(self.shares) == self.job.options.gradient_accumulation_steps)

    def before_step(self, *_: Any) -> None:
        job = self.job
        job.ctx.reporter.phase(Phase.OPTIMIZER)
        with job.ctx.reporter.observing():
            job.found.losses.append(training.mean_over_ranks(sum(self.shares), job.ctx.place))
            job.found.gradients.append(observers.gradients(job.wrapped, job.options))
            job.recorder.after_backward(job.found.gradients[-1])
            scaler = self.accelerator().scaler
            if scaler is not None:
                job.recorder.trace.scales.append(scaler.get_scale())
        self.shares.clear()

    def accelerator(self) -> Any:
        """The Accelerator, which the trainers have too."""
        front = self.job.recorder.front
        return getattr(front, "accelerator", front)

    def complete(self, steps: int) -> None:
        """Fill in missing steps: NaN as the loss and no gradients, so that their checks fail."""
        found = self.job.found
        found.losses += [float("nan")] * (steps - len(found.losses))
        found.gradients += [{}] * (steps - len(found.gradients))
