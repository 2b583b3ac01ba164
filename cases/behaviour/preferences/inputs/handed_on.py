"""What TRL's trainers hand on to the Trainer below them: callbacks, optimisers, tokenisers, arguments, new models.

https://huggingface.co/docs/trl: every trainer is a Trainer, and takes its arguments.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients, trainers
from cases.behaviour.preferences import alignment, reward
from cases.behaviour.preferences.inputs.adapter_settings import rows_of
from cases.behaviour.preferences.inputs.row_forms import known
from cases.behaviour.trainers import stock_trainer
from cases.reference import tolerance
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Arguments of TRL"
KINDS = ("DPO", "CPO", "ORPO", "KTO", "SFT", "Reward")
STEPS, LAST, RATE, OTHER = 2, 1, 0.05, 0.5
# Those of a training that a callback stops and saves after step LAST.
EVENTS = {"on_train_begin": 1, "on_step_begin": 1, "on_step_end": 1, "on_log": 2, "on_save": 1, "on_train_end": 1}


def trainer(ctx: Context, kind: str, *, more: dict[str, Any] | None = None, **chosen: Any) -> Any:
    """A trainer of STEPS steps of four rows on all weights; ``more`` are arguments beside its configuration."""
    settings = {"per_device_train_batch_size": 4, "max_steps": STEPS, "learning_rate": RATE, **chosen}
    if kind == "SFT":
        settings |= {"dataset_text_field": "text", "remove_unused_columns": True}
    if kind == "Reward":
        settings["max_length"] = 32
    given: dict[str, Any] = {"model": base(ctx, kind), "train_dataset": rows_of(kind), **(more or {})}
    return alignment.create(ctx, kind, settings, **given)


def base(ctx: Context, kind: str) -> Any:
    return reward.model(ctx) if kind == "Reward" else ingredients.base(ctx)


@call(GROUP, phase=Phase.OPTIMIZER)
def trl_runs_callbacks(ctx: Context) -> Iterator[Check]:
    """Each trainer of TRL calls the callbacks that it is given at every event, and saves and stops when one says so."""
    from transformers import TrainerCallback

    class Stopping(TrainerCallback):  # type: ignore[misc]  # of a package without types
        """Counts events; saves and stops after a step."""

        def __init__(self) -> None:
            self.counts: dict[str, int] = {}

        def count(self, event: str) -> None:
            self.counts[event] = self.counts.get(event, 0) + 1

        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
            self.count("on_step_end")
            control.should_training_stop = control.should_save = state.global_step >= LAST

    for event in set(EVENTS) - {"on_step_end"}:
        setattr(Stopping, event, lambda self, *_, event=event, **__: self.count(event))
    for kind in known(KINDS):
        callback = Stopping()
        made = trainer(ctx, kind, more={"callbacks": [callback]})
        made.train()
        yield equal(f"events, {kind}", str(sorted(callback.counts.items())), str(sorted(EVENTS.items())))
        yield equal(f"steps until a callback stops, {kind}", made.state.global_step, LAST)


@call(GROUP, phase=Phase.OPTIMIZER)
def trl_steps_given_optimisers(ctx: Context) -> Iterator[Check]:
    """Each trainer of TRL steps the optimiser and the schedule of ``optimizers``, with their rates, not its own."""
    import torch
    from transformers import Trainer

    # Versions log the rate of the step, which they hand on to the log, or that of the next step.
    is_next = "learning_rate" not in inspect.signature(Trainer._maybe_log_save_evaluate).parameters  # noqa: SLF001
    for kind in known(KINDS):
        model = base(ctx, kind)
        chosen = [each for name, each in model.named_parameters() if "layers.0" in name]
        own = torch.optim.SGD(chosen, lr=OTHER, momentum=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(own, step_size=1, gamma=0.5)
        used: list[float] = []
        own.register_step_pre_hook(lambda one, *_, used=used: used.append(one.param_groups[0]["lr"]))
        before = {name: each.detach().clone() for name, each in model.named_parameters()}
        made = trainer(ctx, kind, more={"model": model, "optimizers": (own, schedule)})
        made.train()
        yield equal(f"rates of its steps, {kind}", str(used), str([OTHER / 2**step for step in range(STEPS)]))
        yield equal(f"the optimiser is the given one, {kind}", stock_trainer.bare(made.optimizer) is own, bound=True)
        logged = [entry["learning_rate"] for entry in made.state.log_history if "learning_rate" in entry]
        rates = [OTHER / 2 ** (step + is_next) for step in range(STEPS)]
        yield equal(f"rates of the log, {kind}", str(logged), str(rates))
        moved = {name for name, each in model.named_parameters() if not torch.equal(each.detach(), before[name])}
        yield equal(
            f"weights outside of the optimiser that moved, {kind}", len([n for n in moved if "layers.0" not in n]), 0
        )
        yield at_least(f"weights that moved, {kind}", len(moved), 7)
        first, second = made.micro_gradients
        wanted = {
            name: before[name] - OTHER * first[name] - OTHER / 2 * (second[name] + 0.5 * first[name])
            for name in moved & first.keys()
        }
        found = {name: each.detach() for name, each in model.named_parameters() if name in wanted}
        yield equal(f"moved weights with a gradient, {kind}", len(wanted), len(moved))
        yield at_most(f"weights after momentum off, {kind}", tolerance.worst_tensor(found, wanted), alignment.SAME)


@call(GROUP, phase=Phase.SAVE)
def trl_keeps_tokenisers(ctx: Context) -> Iterator[Check]:
    """Each trainer of TRL has the tokeniser that it is given, and saves it with checkpoints and with the model."""
    from transformers import AutoTokenizer

    text = "w9 w8 w77"
    for kind in known(KINDS):
        made = trainer(ctx, kind, save_strategy="steps", save_steps=STEPS, output_dir=str(ctx.kept / kind))
        made.train()
        made.save_model(str(ctx.kept / f"{kind}-saved"))
        held: Any = getattr(made, "processing_class", None) or getattr(made, "tokenizer", None)
        wanted = ingredients.tokenizer()(text)["input_ids"]
        yield equal(f"ids by the trainer's tokeniser, {kind}", str(held(text)["input_ids"]), str(wanted))
        for place in (f"{kind}-saved", f"{kind}/checkpoint-{STEPS}"):
            read = AutoTokenizer.from_pretrained(ctx.kept / place)
            name = "a checkpoint" if "checkpoint" in place else "the model"
            yield equal(f"ids by the tokeniser beside {name}, {kind}", str(read(text)["input_ids"]), str(wanted))
            yield equal(
                f"padding and end beside {name}, {kind}", str((read.pad_token, read.eos_token)), str(("<pad>", "</s>"))
            )


@call(GROUP, phase=Phase.OPTIMIZER)
def sft_takes_training_arguments(ctx: Context) -> Iterator[Check]:
    """SFTTrainer trains with plain TrainingArguments as with an SFTConfig of the same values; others are defaults.

    https://huggingface.co/docs/trl/sft_trainer#trl.SFTTrainer
    """
    from transformers import TrainingArguments

    rows = ingredients.dataset(text=[ingredients.sentence(length, 7 * length) for length in (5, 9, 3, 7)])
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 2,
        "max_steps": STEPS,
        "gradient_accumulation_steps": 2,
        "bf16": False,
    }
    settings |= {"gradient_checkpointing": False, "remove_unused_columns": True, "learning_rate": RATE}
    kind = alignment.recording(trainers.in_order(alignment.named("SFTTrainer")))
    found = {}
    for name, made in {"plain": TrainingArguments, "own": alignment.named("SFTConfig")}.items():
        arguments = ingredients.arguments(ctx, made, **settings)
        keyword = ingredients.tokenizer_argument(kind.__mro__[1])
        found[name] = kind(model=ingredients.base(ctx), args=arguments, train_dataset=rows, **keyword)
        found[name].train()
    plain, own = found["plain"], found["own"]
    yield equal("the arguments become those of SFT", isinstance(plain.args, alignment.named("SFTConfig")), bound=True)
    kept = {name: getattr(plain.args, name) for name in settings}
    yield equal("values that are kept", str(kept), str(settings))
    yield equal("micro-batches", len(plain.micro_losses), 2 * STEPS)
    yield at_most(
        "losses apart", max(abs(a - b) for a, b in zip(plain.micro_losses, own.micro_losses, strict=True)), 0.0
    )
    after = alignment.weights(plain.model), alignment.weights(own.model)
    yield at_most("weights apart", tolerance.worst_tensor(*after), 0.0)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("reward_model_init",))
def reward_trains_fresh_models(ctx: Context) -> Iterator[Check]:
    """RewardTrainer with model_init instead of a model trains the model that it makes at each start."""
    fresh: list[Any] = []

    def begin() -> Any:
        fresh.append(reward.model(ctx))
        return fresh[-1]

    made = trainer(ctx, "Reward", more={"model": None, "model_init": begin})
    before = len(fresh)
    yield at_least("models made by the constructor", before, 1)
    losses = []
    for turn in (1, 2):
        made.micro_losses = []
        made.train()
        yield equal(f"models made by training {turn}", len(fresh) - before, turn)
        yield equal(f"training {turn} takes the last one", made.model is fresh[-1], bound=True)
        losses.append(list(made.micro_losses))
    yield equal("losses of both trainings", str(losses[1]), str(losses[0]))
    yield at_least("losses that fall", losses[0][0] - losses[0][-1], 1e-6)


@call(GROUP, phase=Phase.SAVE)
def cards_name_versions(ctx: Context) -> Iterator[Check]:
    """create_model_card names the version of each library that made the model, as it is installed."""
    packages = {"TRL": "trl", "Transformers": "transformers", "Pytorch": "torch"}
    packages |= {"Datasets": "datasets", "Tokenizers": "tokenizers"}
    for kind in known(KINDS):
        made = trainer(ctx, kind)
        made.create_model_card(model_name="tuned")
        text = (ctx.kept / "output" / "README.md").read_text(encoding="utf-8")
        for title, package in packages.items():
            line = next((line for line in text.splitlines() if f"{title}:" in line), "")
            version = line.partition(f"{title}:")[2].strip(" *")
            wanted = importlib.metadata.version(package)
            yield equal(f"version of {title}, {kind}", version.partition("+")[0], wanted.partition("+")[0])
