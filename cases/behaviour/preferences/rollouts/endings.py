"""What ends a training of GRPOTrainer and RLOOTrainer, and what ends a completion: callbacks and end tokens.

https://huggingface.co/docs/trl/grpo_trainer and https://huggingface.co/docs/trl/rloo_trainer#logged-metrics
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, grpo, policies
from cases.behaviour.preferences.rollouts.generations import KINDS, STILL
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

OTHER = tiny.START  # an end of a turn, which no completion has


@call("Arguments of TRL", phase=Phase.OPTIMIZER, requires=("rloo",))
def rollouts_run_callbacks(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer and RLOOTrainer call the callbacks that they are given, and stop when one says so."""
    from transformers import TrainerCallback

    for kind in KINDS:
        ends: list[int] = []

        class StopsAfterOne(TrainerCallback):  # type: ignore[misc]  # of a package without types
            def on_step_end(self, _args: Any, state: Any, control: Any, ends: Any = ends, **_: Any) -> None:
                ends.append(state.global_step)
                control.should_training_stop = state.global_step == 1

        made, _ = grpo.trainer(ctx, {**STILL, "max_steps": 3}, kind, callbacks=[StopsAfterOne()])
        made.train()
        yield equal(f"steps that the callback sees, {kind}", str(ends), "[1]")
        yield equal(f"steps until it stops the training, {kind}", made.state.global_step, 1)


def lengths(rows: list[tuple[list[int], list[int]]]) -> dict[str, float]:
    """The metrics of the lengths of completions, of which some end and the others have the largest length."""
    whole = [len(ids) for _, ids in rows]
    ended = [len(ids) for _, ids in rows if ids[-1] == tiny.END]
    return {
        "completions/mean_length": policies.mean(whole),
        "completions/clipped_ratio": 1 - len(ended) / len(whole),
        "completions/mean_terminated_length": policies.mean(ended),
        "completions/max_terminated_length": float(max(ended)),
    }


@call("Metrics of TRL", phase=Phase.FORWARD, requires=("rloo", "grpo_metrics"))
def rollouts_end_at_the_tokenisers_end(ctx: Context) -> Iterator[Check]:
    """A completion ends at the tokeniser's end token, also if the model's generation config has none, or another one.

    "completions/clipped_ratio: The ratio of truncated (clipped) completions."
    """
    for kind in KINDS:
        for own in (None, OTHER, [OTHER, tiny.END]):
            model = ingredients.base(ctx)
            model.generation_config.eos_token_id = own
            made, rollouts = grpo.trainer(ctx, {**STILL, "model": model, "max_steps": 1}, kind)
            made.train()
            entry = next(entry for entry in made.state.log_history if "loss" in entry)
            for name, wanted in lengths(rollouts.calls[0]).items():
                off = alignment.off(entry.get(name, float("inf")), wanted)
                yield at_most(f"{name} off, {kind}, {own}", off, grpo.SAME)
