"""A training that was stopped and resumed against one that was not: equal bit for bit.

LoRA with dropout, shuffled rows, AdamW, a schedule with warm-up, and a stop in the middle of an epoch.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.apply import front_ends
from cases.behaviour.trainers import stock_trainer
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "Resuming"
ROWS, STOP = 18, 7  # the step after which the training stops: in the second epoch, of five steps on two ranks


def adapted(ctx: Context) -> Any:
    from peft import get_peft_model

    model = get_peft_model(stock_trainer.model(ctx), ingredients.lora(lora_dropout=0.3))
    return ingredients.fill_adapter(model)


def arguments(**more: Any) -> dict[str, Any]:
    return {
        "optim": "adamw_torch",
        "learning_rate": 0.01,
        "weight_decay": 0.1,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 2,
        "max_grad_norm": 1.0,
        "save_strategy": "steps",
        "save_steps": STOP,
        "num_train_epochs": 3,
        **more,
    }


def by_trainer(ctx: Context, **more: Any) -> Any:
    return stock_trainer.trainer(ctx, ROWS, of=adapted(ctx), **arguments(**more))


def by_sft(ctx: Context, **more: Any) -> Any:
    """An SFTTrainer for the same rows, with the tokens of prompts in the loss."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    os.environ.update(front_ends.launched(ctx.place))
    rows = [{"input_ids": row["input_ids"].tolist()} for row in stock_trainer.rows(ROWS)]
    plain = {"bf16": False, "gradient_checkpointing": False, "remove_unused_columns": True}
    return SFTTrainer(
        model=adapted(ctx),
        args=stock_trainer.arguments(ctx, SFTConfig, **plain, **arguments(**more)),
        train_dataset=Dataset.from_list(rows),
        **ingredients.tokenizer_argument(SFTTrainer),
    )


def trained(trainer: Any, checkpoint: str | None = None) -> tuple[stock_trainer.Record, dict[str, Any]]:
    """The record of a training and its trained weights."""
    import torch

    record = stock_trainer.observed(trainer)
    torch.manual_seed(99)  # what a program did before does not matter
    trainer.train(resume_from_checkpoint=checkpoint)
    return record, {name: p.detach() for name, p in tiny.named(trainer.model) if p.requires_grad}


def equal_to_uninterrupted(ctx: Context, made: Callable[..., Any], stop: int = STOP, **more: Any) -> Iterator[Check]:
    more = {"save_steps": stop, **more}
    whole, wanted = trained(made(ctx, **more))
    rest, found = trained(made(ctx, **more), str(ctx.kept / "output" / f"checkpoint-{stop}"))
    yield equal("steps after resuming", len(rest.steps), len(whole.steps) - stop)
    yield equal("rows after resuming", str(rest.steps), str(whole.steps[stop:]))
    yield equal("learning rates after resuming", str(rest.rates), str(whole.rates[stop:]))
    yield equal("gradient norms after resuming", str(rest.norms), str(whole.norms[stop:]))
    yield equal("weights that differ", len(different(found, wanted)), 0)


def different(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    return [name for name, tensor in wanted.items() if name not in found or not found[name].equal(tensor)]


@call(GROUP, phase=Phase.RESUME)
def resume_trainer(ctx: Context) -> Iterator[Check]:
    """A Trainer that resumes within an epoch repeats the dropout, rows and steps of an uninterrupted training."""
    yield from equal_to_uninterrupted(ctx, by_trainer, num_train_epochs=1, max_grad_norm=1.0)


@call(GROUP, phase=Phase.RESUME)
def resume_trainer_after_an_epoch(ctx: Context) -> Iterator[Check]:
    """A Trainer that resumes between two epochs repeats the dropout, rows and steps of an uninterrupted training."""
    yield from equal_to_uninterrupted(ctx, by_trainer, stop=ROWS // 2, num_train_epochs=2)


@call(GROUP, phase=Phase.RESUME)
def resume_trainer_in_part_of_an_epoch(ctx: Context) -> Iterator[Check]:
    """A Trainer that resumes in the last half of one and a half epochs repeats an uninterrupted training.

    An epoch has five batches, of four rows and a last one of two; seven and a half are rounded up to eight steps.
    """
    stop, whole = 6, 8
    more = {"num_train_epochs": 1.5, "per_device_train_batch_size": 4}
    yield from equal_to_uninterrupted(ctx, by_trainer, stop=stop, **more)
    state = json.loads((ctx.kept / "output" / f"checkpoint-{stop}" / "trainer_state.json").read_text())
    yield equal("steps of all epochs", state["max_steps"], whole)
    yield at_most("logged epoch, off", abs(state["epoch"] - stop / 5), 1e-9)


@call(GROUP, phase=Phase.RESUME)
def resume_trainer_accumulated(ctx: Context) -> Iterator[Check]:
    """A Trainer with gradient accumulation that resumes in its third epoch repeats an uninterrupted training."""
    yield from equal_to_uninterrupted(ctx, by_trainer, gradient_accumulation_steps=3)


@call(GROUP, phase=Phase.RESUME, ranks=2)
def resume_trainer_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, each with a random state of its own, a resumed Trainer repeats an uninterrupted training."""
    yield from equal_to_uninterrupted(ctx, by_trainer)


@call(GROUP, phase=Phase.RESUME, requires=("sft_config",))
def resume_sft(ctx: Context) -> Iterator[Check]:
    """An SFTTrainer that resumes within an epoch repeats an uninterrupted training."""
    yield from equal_to_uninterrupted(ctx, by_sft, num_train_epochs=1)


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=("sft_config",))
def resume_sft_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, a resumed SFTTrainer repeats an uninterrupted training."""
    yield from equal_to_uninterrupted(ctx, by_sft)


def by_loop(ctx: Context, stop: int, folder: str, *, resumed: bool) -> tuple[list[Any], dict[str, Any]]:
    """A plain loop with accelerate over two epochs; saves its state after ``stop`` steps, or begins there.

    The loader has its own generator: otherwise a new iterator draws from the random state that ``load_state`` restored.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, set_seed

    os.environ.update(front_ends.launched(ctx.place))
    seeded = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(cpu=ctx.place.kind == "cpu", dataloader_config=seeded)
    set_seed(3)
    model = adapted(ctx).train()
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / 6))
    rows = stock_trainer.rows(ROWS)
    own = torch.Generator().manual_seed(3)
    loader = torch.utils.data.DataLoader(rows, 2, shuffle=True, collate_fn=stock_trainer.padded, generator=own)
    wrapped, optimiser, loader, schedule = accelerator.prepare(model, optimiser, loader, schedule)
    torch.manual_seed(10 * (1 + resumed) + ctx.place.rank)  # each rank's own dropout, which load_state must restore
    if resumed:
        accelerator.load_state(folder)
    seen, step = [], stop if resumed else 0
    for epoch in range(step // len(loader), 2):
        loader.set_epoch(epoch)
        skipped = step % len(loader)
        for batch in accelerator.skip_first_batches(loader, skipped) if skipped else loader:
            loss = wrapped(**batch).loss
            accelerator.backward(loss)
            optimiser.step()
            seen.append((stock_trainer.numbers(batch["input_ids"]), loss.item(), schedule.get_last_lr()[0]))
            schedule.step()
            optimiser.zero_grad()
            step += 1
            if step == stop and not resumed:
                accelerator.save_state(folder)
    return seen, {name: p.detach() for name, p in tiny.named(model) if p.requires_grad}


def loop_resumed(ctx: Context) -> Iterator[Check]:
    folder = str(ctx.kept / "state")
    stop = 12 // ctx.place.world_size
    whole, wanted = by_loop(ctx, stop, folder, resumed=False)
    rest, found = by_loop(ctx, stop, folder, resumed=True)
    names = ("rows", "losses", "learning rates")
    for name, after, before in zip(names, zip(*rest, strict=True), zip(*whole[stop:], strict=True), strict=True):
        yield equal(f"{name} after resuming", str(after), str(before))
    yield equal("weights that differ", len(different(found, wanted)), 0)


@call(GROUP, phase=Phase.RESUME)
def resume_accelerate(ctx: Context) -> Iterator[Check]:
    """save_state, load_state and skip_first_batches repeat an uninterrupted loop, as accelerate documents.

    https://huggingface.co/docs/accelerate/usage_guides/checkpoint, with a seedable sampler and ``set_epoch``.
    """
    yield from loop_resumed(ctx)


@call(GROUP, phase=Phase.RESUME, ranks=2)
def resume_accelerate_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, each with a random state of its own, load_state repeats an uninterrupted loop."""
    yield from loop_resumed(ctx)


DONE = 257  # steps; bfloat16 holds 256 and 258, but not this number
OPTIMISERS: dict[str, tuple[str, dict[str, Any]]] = {
    "AdamW, fused": ("AdamW", {"fused": True}),
    "AdamW, foreach": ("AdamW", {"foreach": True}),
    "AdamW, one by one": ("AdamW", {"foreach": False}),
    "Adam, fused, amsgrad": ("Adam", {"fused": True, "amsgrad": True}),
    "SGD, momentum": ("SGD", {"momentum": 0.75, "weight_decay": 0.25}),
    "Adagrad": ("Adagrad", {}),
}


@call(GROUP, phase=Phase.RESUME, requires=("fused_adamw",))
def optimiser_state_loaded(ctx: Context) -> Iterator[Check]:
    """load_state_dict of torch's optimisers keeps the step's number and moments, in float32 and in bfloat16.

    The loaded optimiser goes on like the one that was never interrupted. Its step is a float32 number in any dtype.
    """
    import torch

    for kind, (name, more) in OPTIMISERS.items():
        for dtype in (torch.float32, torch.bfloat16):
            title = f"{kind}, {dtype}"
            parts = [torch.nn.Parameter(torch.linspace(-1, 1, 12).to(ctx.place.device, dtype)) for _ in range(2)]
            one, other = (getattr(torch.optim, name)([part], lr=0.125, **more) for part in parts)
            gradients = [torch.linspace(1, 2 + each, 12).to(parts[0]) for each in range(3)]
            stepped(parts[0], one, gradients[:2])
            for state in one.state.values():
                if "step" in state:
                    state["step"].fill_(DONE)
            with torch.no_grad():
                parts[1].copy_(parts[0])
            other.param_groups[0]["lr"] = 0.5
            other.load_state_dict(copied(one.state_dict(), ctx))
            for found, wanted in zip(other.state.values(), one.state.values(), strict=True):
                dtypes = {key: str(value.dtype) for key, value in found.items() if value is not None}
                expected = {key: str(value.dtype) for key, value in wanted.items() if value is not None}
                yield equal(f"dtypes of the state, {title}", str(dtypes), str(expected))
                if "step" in found:
                    yield equal(f"steps loaded, {title}", float(found["step"]), float(DONE))
                    yield equal(f"dtype of the step, {title}", str(found["step"].dtype), "torch.float32")
            yield equal(f"learning rate, {title}", other.param_groups[0]["lr"], 0.125)
            for part, optimiser in zip(parts, (one, other), strict=True):
                stepped(part, optimiser, gradients[2:])
            yield equal(f"weights that differ, {title}", int((parts[0] != parts[1]).sum()), 0)


def stepped(part: Any, optimiser: Any, gradients: Any) -> None:
    for gradient in gradients:
        part.grad = gradient.clone()
        optimiser.step()


def copied(state: dict[str, Any], ctx: Context) -> Any:
    """A state dict after a file."""
    import torch

    ctx.kept.mkdir(parents=True, exist_ok=True)
    torch.save(state, ctx.kept / "state.pt")
    return torch.load(ctx.kept / "state.pt", weights_only=True)
