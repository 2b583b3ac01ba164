"""Training with transformers' Trainer or TRL's SFTTrainer: their loop, precision and checkpoints.

A subclass sets the optimiser, its learning rates and the order of the rows, as users do who need control over them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cases.apply import build, compat, training
from cases.apply.step_hook import StepHook
from cases.checks import observers
from cases.model import adapter_start, adapters, architectures, data, tiny
from cases.reference.quantisation import MAX_NORM
from cases.reference.twin import LEARNING_RATE
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from pathlib import Path

    from cases.apply.context import Context
    from cases.apply.training import Trainee
    from cases.space.options import Options

CHECKPOINTS = "checkpoints"  # folder that the trainer writes into


@dataclass
class TrainerDriver:
    """``stop`` is the global step after which training ends; ``checkpoint`` is what it goes on from."""

    trainer: Any
    watch: StepHook
    stop: int = tiny.STEPS
    checkpoint: str | None = None


def prepare(ctx: Context) -> Trainee:
    options, reporter = ctx.options, ctx.reporter
    reporter.phase(Phase.LOAD)
    base = build.load(options, ctx.place, ctx.cache)
    loading = training.quantisation_checks(base, options)
    reporter.phase(Phase.ADAPT)
    if trainer_adapts(options):
        trainer = create_trainer(ctx, base, peft_config=adapters.config(options))
        adapter_start.start(trainer.model, options)
    else:
        trainer = create_trainer(ctx, adapted(base, options))
    job = training.recorded(ctx, trainer.model, loading)
    trainer.watch = StepHook(job)
    trainer.watch.model(job.model)
    trainer.add_callback(callback(job))
    job.front, job.recorder.front = TrainerDriver(trainer, trainer.watch), trainer
    reporter.phase(Phase.WRAP)  # the trainer wraps when training begins
    return job


def trainer_adapts(options: Options) -> bool:
    """Return whether SFTTrainer adds the adapter; it cannot pass on arguments of ``get_peft_model``."""
    asks = options.torch_dtype != "fp32" and not options.autocast_adapter_dtype
    return options.front_end == "sft" and options.method != "full" and not asks


def adapted(base: Any, options: Options) -> Any:
    """Adapt the model without checkpointing, which the trainer enables by its arguments."""
    model = build.adapt(base, replace(options, gradient_checkpointing="off"))
    if options.gradient_checkpointing != "off" and options.method != "full":
        model.enable_input_require_grads()  # otherwise nothing before the first adapter requires a gradient
    return model


def create_trainer(ctx: Context, model: Any, **more: Any) -> Any:
    """Create the trainer of the front end."""
    from transformers import Trainer

    options = ctx.options
    words = tokenizer(options)
    if options.front_end == "sft":
        from trl import SFTTrainer

        masked = compat.has_completion_mask()
        ctx.reporter.facts({"first token of a row": "masked" if masked else "left to TRL's collator"})
        base, rows = SFTTrainer, token_dataset(options, masked=masked)
        more.update(compat.text_arguments())
    else:
        base, rows = Trainer, labelled(options)
        more["data_collator"] = collator(words, options)
    how = compat.tokenizer_argument(base)
    ctx.reporter.facts({"tokenizer passed as": how})
    return trainer_class(base, options)(
        model=model,
        args=compat.training_arguments(arguments(ctx), sft=options.front_end == "sft"),
        train_dataset=rows,
        **{how: words},
        **more,
    )


def arguments(ctx: Context) -> dict[str, Any]:
    """The training arguments; sets everything that the trainers would decide themselves."""
    options = ctx.options
    found: dict[str, Any] = {
        "output_dir": str(ctx.kept / CHECKPOINTS),
        "max_steps": tiny.STEPS,
        "per_device_train_batch_size": tiny.rows_at_once(ctx.place.world_size, options.gradient_accumulation_steps),
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
        "max_grad_norm": MAX_NORM if options.clip_grad_norm else 0.0,
        "learning_rate": LEARNING_RATE[options.optim],
        "bf16": options.autocast == "bf16",
        "fp16": options.autocast == "fp16",
        "gradient_checkpointing": options.gradient_checkpointing != "off",
        "ddp_find_unused_parameters": options.find_unused_parameters,
        "dataloader_pin_memory": False,
        "use_cpu": ctx.place.kind == "cpu",
        "save_strategy": "steps" if options.flow == "resume" else "no",
        "save_steps": 1,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
    }
    if options.data != "plain":  # the numbers of tokens differ
        found.update(compat.token_average())
    if options.gradient_checkpointing != "off":
        found["gradient_checkpointing_kwargs"] = {"use_reentrant": options.gradient_checkpointing == "reentrant"}
    return found


def dataset_rows(options: Options) -> list[dict[str, Any]]:
    """The rows of all steps, in order and before padding, with the labels of the twin."""
    return [row for step in range(tiny.STEPS) for row in data.rows(step, options).unpadded()]


def labelled(options: Options) -> list[dict[str, Any]]:
    """Rows for the Trainer. A decoder's first label is masked, as nothing predicts it; an encoder-decoder learns it.

    Transformers 4.46 to 5 may divide a loss by the number of labels, including those of first tokens.
    """
    found = []
    for row in dataset_rows(options):
        labels = row["labels"].clone()
        if not architectures.spec(options).encoder_decoder:
            labels[0] = data.IGNORED
        found.append({**row, "labels": labels})
    return found


def collator(words: Any, options: Options) -> Any:
    """The collator for the rows: one that pads where they differ in length."""
    import transformers

    if not options.data.startswith("padded"):
        return transformers.default_data_collator
    return transformers.DataCollatorForSeq2Seq(words, padding="longest", pad_to_multiple_of=data.MULTIPLE)


def token_dataset(options: Options, *, masked: bool) -> Any:
    """Tokenised rows for SFTTrainer, with masks of the tokens to learn; the first one is never predicted."""
    from datasets import Dataset

    rows = dataset_rows(options)
    ids = [row["input_ids"].tolist() for row in rows]
    if compat.text_arguments():
        return Dataset.from_dict({"text": [" ".join(map(word, row)) for row in ids]})
    learned = [[0, *(row["labels"][1:] != data.IGNORED).long().tolist()] for row in rows]
    return Dataset.from_dict({"input_ids": ids, **({"completion_mask": learned} if masked else {})})


def tokenizer(options: Options) -> Any:
    """A tokeniser with a word for each of the model's tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    start, end, padding = word(tiny.START), word(tiny.END), word(tiny.PADDING)
    words = Tokenizer(models.WordLevel({word(id_): id_ for id_ in range(tiny.VOCABULARY)}, unk_token=start))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=padding,
        unk_token=start,
        bos_token=start,
        eos_token=end,
        padding_side="left" if options.data == "padded_left" else "right",
        model_max_length=2 * tiny.LENGTH,
    )


def word(token: int) -> str:
    """The word of a token. No special word is a prefix of another, as tokenizers would match it there."""
    return {tiny.PADDING: "<pad>", tiny.START: "<s>", tiny.END: "</s>"}.get(token, f"t{token}")


def trainer_class(base: Any, options: Options) -> Any:
    """A trainer subclass that keeps the order of rows, uses our optimiser and schedule, and records losses."""
    from torch.utils.data import SequentialSampler

    class CaseTrainer(base):  # type: ignore[misc]  # as the stack, typed as Any
        watch: StepHook
        optimizer: Any
        lr_scheduler: Any

        def _get_train_sampler(self, *_: Any) -> Any:
            return SequentialSampler(self.train_dataset)

        def create_optimizer(self, model: Any = None) -> Any:
            if self.optimizer is None:
                self.optimizer = build.optimiser(self.model if model is None else model, options)
                self.watch.optimiser(self.optimizer)
            return self.optimizer

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            del num_training_steps
            if self.lr_scheduler is None:
                self.lr_scheduler = build.scheduler(self.optimizer if optimizer is None else optimizer)
            return self.lr_scheduler

        def training_step(self, *arguments: Any, **named: Any) -> Any:
            loss = super().training_step(*arguments, **named)
            self.watch.loss(loss)
            return loss

    CaseTrainer.__name__ = base.__name__  # the trainers write their name into what they save
    return CaseTrainer


def callback(job: Trainee) -> Any:
    """A callback that records the wrapped model when training begins, and stops training after the last step."""
    from transformers import TrainerCallback

    reporter = job.ctx.reporter

    class Callback(TrainerCallback):  # type: ignore[misc]  # as above
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            with reporter.observing():
                job.wrapped = job.recorder.wrapped = job.front.trainer.model_wrapped
                if corrupts_other_ranks(job):
                    job.recorder.synced = training.equal_bits(observers.weights(job.wrapped, job.options), job.before)

        def on_step_end(self, _arguments: Any, state: Any, control: Any, **_: Any) -> None:
            if control.should_save:
                reporter.phase(Phase.SAVE)
            if state.global_step >= job.front.stop:
                control.should_training_stop = True

    return Callback()


def corrupts_other_ranks(job: Trainee) -> bool:
    """Return whether the case corrupts the other ranks' weights: not if each rank reads a checkpoint."""
    return job.options.strategy == "ddp" and job.front.checkpoint is None


def steps(job: Trainee, numbers: range) -> None:
    driver: TrainerDriver = job.front
    driver.stop = numbers.stop
    if corrupts_other_ranks(job) and job.ctx.place.rank > 0:
        training.corrupt(job.model)
    driver.trainer.train(resume_from_checkpoint=driver.checkpoint)
    driver.watch.complete(numbers.stop)
    if job.options.clip_grad_norm:
        logged = [entry["grad_norm"] for entry in driver.trainer.state.log_history if "grad_norm" in entry]
        job.recorder.trace.norms += logged[numbers.start :]


def save_model(job: Trainee, folder: Path) -> None:
    job.front.trainer.save_model(str(folder))


def save_training(job: Trainee, folder: Path) -> None:
    """Do nothing: the trainer wrote its checkpoint after the step."""


def load_training(job: Trainee, folder: Path) -> None:
    """Find the checkpoint; the trainer reads it when training begins."""
    from transformers.trainer_utils import get_last_checkpoint

    job.front.checkpoint = get_last_checkpoint(str(folder / CHECKPOINTS))
