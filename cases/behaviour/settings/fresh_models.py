"""The Trainer with model_init instead of a model, and trainings of one Trainer after another.

"A function that instantiates the model to be used. If provided, each call to train will start from a new instance of
the model as given by this function." The seed makes runs reproducible "if it has some randomly initialized parameters".
https://huggingface.co/docs/transformers/main_classes/trainer#transformers.Trainer
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.trainers import stock_trainer
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Trainer: steps"
STEPS = 2
SEEDS = (7, 7, 8)


def head(model: Any) -> list[float]:
    return [float(each) for each in model.get_output_embeddings().weight.detach()[0]]


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_fresh_models(ctx: Context) -> Iterator[Check]:
    """With model_init, the seed decides the values that a model draws, and each training starts from a new model.

    Its optimiser has the new parameters, and a second training repeats the losses of the first.
    """
    import torch
    from transformers import Trainer

    os.environ.update(front_ends.launched(ctx.place))
    began: list[list[float]] = []

    def begin() -> Any:
        model = stock_trainer.model(ctx)
        with torch.no_grad():
            model.get_output_embeddings().weight.normal_(0, 0.02)
        began.append(head(model))
        return model

    starts: list[list[float]] = []
    for seed in SEEDS:
        torch.manual_seed(len(starts))  # of the script, which must not count
        arguments = stock_trainer.arguments(ctx, max_steps=STEPS, seed=seed, learning_rate=0.5)
        data: dict[str, Any] = {"train_dataset": stock_trainer.rows(4), "data_collator": stock_trainer.padded}
        trainer = Trainer(model_init=begin, args=arguments, **data)
        losses = []
        for turn in (1, 2):
            trainer.train()
            logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
            losses.append(logged)
            held = {id(each) for group in trainer.optimizer.param_groups for each in group["params"]}
            trained = {id(each) for _, each in tiny.named(trainer.model)}
            yield equal(f"trained parameters that the optimiser lacks, training {turn}", len(trained - held), 0)
            yield equal(f"steps, training {turn}", trainer.state.global_step, STEPS)
            yield equal(f"a model that moved, training {turn}", head(trainer.model) != began[-1], bound=True)
        yield equal("losses of the second training", str(losses[1]), str(losses[0]))
        starts.append(began[-1])
        yield equal("models that begin elsewhere than the last", sum(each != began[-1] for each in began[-2:]), 0)
    yield equal("starts of one seed", starts[0] == starts[1], bound=True)
    yield equal("starts of two seeds", starts[0] == starts[2], bound=False)
