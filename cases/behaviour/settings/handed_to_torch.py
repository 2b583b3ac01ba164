"""Arguments of the Trainer that torch has to get: those of loaders, of DDP, of determinism, and levels of logs.

https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context

GROUP = "Trainer: derived settings"
MEBIBYTE = 2**20
LOADERS = {"train": (3, 7), "evaluate": (5, 9), "predict": (5, 8)}  # rows of a batch, and of a data set
# Fields of TrainingArguments, with a value, and the attribute of torch's loader that has it.
FIELDS: Mapping[str, tuple[Any, str]] = {
    "dataloader_num_workers": (2, "num_workers"),
    "dataloader_prefetch_factor": (3, "prefetch_factor"),
    "dataloader_persistent_workers": (True, "persistent_workers"),
    "dataloader_in_order": (False, "in_order"),
    "dataloader_pin_memory": (True, "pin_memory"),
    "dataloader_drop_last": (True, "drop_last"),
}


def loaders(ctx: Context, **chosen: Any) -> dict[str, Any]:
    """The three loaders of a Trainer, none of which has begun."""
    usual = {"per_device_train_batch_size": LOADERS["train"][0], "per_device_eval_batch_size": LOADERS["evaluate"][0]}
    trainer = stock_trainer.trainer(ctx, LOADERS["train"][1], evaluated=LOADERS["evaluate"][1], **usual, **chosen)
    return {
        "train": trainer.get_train_dataloader(),
        "evaluate": trainer.get_eval_dataloader(),
        "predict": trainer.get_test_dataloader(stock_trainer.rows(LOADERS["predict"][1])),
    }


@call(GROUP, phase=Phase.LOAD)
def trainer_loader_arguments(ctx: Context) -> Iterator[Check]:
    """Each dataloader_ argument of the Trainer reaches its loaders of training, evaluation and prediction.

    Their batches have the sizes of training and of evaluation; drop_last leaves out an incomplete one.
    """
    for name, loader in loaders(ctx).items():
        size, rows = LOADERS[name]
        batches = [len(batch["input_ids"]) for batch in loader]
        wanted = [size] * (rows // size) + [rows % size] * (rows % size > 0)
        yield equal(f"rows of batches, {name}", str(batches), str(wanted))
        yield equal(f"rows of the data set, {name}", len(loader.dataset), rows)
    known = {name: value for name, value in FIELDS.items() if stock_trainer.known(name)}
    if ctx.place.kind == "cpu":  # without a GPU, loaders pin nothing
        del known["dataloader_pin_memory"]
    for name, loader in loaders(ctx, **{field: value for field, (value, _) in known.items()}).items():
        for field, (value, attribute) in known.items():
            if attribute == "drop_last":
                yield equal(f"batches with {field}, {name}", len(loader), LOADERS[name][1] // LOADERS[name][0])
            else:
                yield equal(f"{attribute} by {field}, {name}", getattr(loader, attribute), value)


@call(GROUP, phase=Phase.LOAD, ranks=2)
def trainer_ddp_arguments(ctx: Context) -> Iterator[Check]:
    """The ddp_ arguments of the Trainer reach DDP, each alone; those that a user leaves open have torch's defaults.

    find_unused_parameters is on for models that do not recompute layers, as its documentation says.
    """
    usual = {"find_unused_parameters": True, "broadcast_buffers": True, "bucket_bytes_cap": 25 * MEBIBYTE}
    usual["static_graph"] = False
    kinds: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "nothing": ({}, {}),
        "unused": ({"ddp_find_unused_parameters": False}, {"find_unused_parameters": False}),
        "bucket": ({"ddp_bucket_cap_mb": 3}, {"bucket_bytes_cap": 3 * MEBIBYTE}),
        "buffers": ({"ddp_broadcast_buffers": False}, {"broadcast_buffers": False}),
        "static": ({"ddp_static_graph": True}, {"static_graph": True}),
    }
    for title, (chosen, changed) in kinds.items():
        if not all(map(stock_trainer.known, chosen)):
            continue
        trainer = stock_trainer.trainer(ctx, 4, max_steps=1, **chosen)
        trainer.train()
        wrapped = trainer.model_wrapped
        for name, value in {**usual, **changed}.items():
            yield equal(f"{name} of DDP, with {title} chosen", getattr(wrapped, name), value)


@call(GROUP, phase=Phase.LOAD)
def trainer_full_determinism(ctx: Context) -> Iterator[Check]:
    """full_determinism=True lets torch use deterministic algorithms alone; it starts from the same random numbers."""
    import torch

    drawn = []
    for chosen in (False, True):
        torch.use_deterministic_algorithms(mode=False)
        stock_trainer.trainer(ctx, 2, full_determinism=chosen)
        drawn.append(torch.rand(4).tolist())
        on = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(mode=False)
        yield equal(f"deterministic algorithms, full_determinism={chosen}", on, chosen)
    wanted = torch.rand(4, generator=torch.Generator().manual_seed(7)).tolist()
    for chosen, found in zip((False, True), drawn, strict=True):
        yield equal(f"numbers behind the start, full_determinism={chosen}", str(found), str(wanted))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def trainer_log_levels(ctx: Context) -> Iterator[Check]:
    """log_level is the level of the main process, log_level_replica that of the others; passive keeps the level."""
    from transformers.utils import logging

    kinds: tuple[tuple[dict[str, Any], tuple[int, int]], ...] = (
        ({"log_level": "error", "log_level_replica": "critical"}, (logging.ERROR, logging.CRITICAL)),
        ({"log_level": "info"}, (logging.INFO, logging.WARNING)),
        ({"log_level_replica": "passive"}, (logging.DEBUG, logging.DEBUG)),
    )
    for chosen, wanted in kinds:
        logging.set_verbosity(logging.DEBUG)
        stock_trainer.trainer(ctx, 2, **chosen)
        yield equal(f"level of a rank, {', '.join(chosen)}", logging.get_verbosity(), wanted[ctx.place.rank])
