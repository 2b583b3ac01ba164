"""The methods of TrainingArguments that set a group of fields: which field each of their arguments sets.

https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.set_dataloader and others
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context

GROUP = "Trainer: derived settings"
# By method: each of its arguments, with a value that is no default, and the field that must have it.
SETTERS: Mapping[str, Mapping[str, tuple[Any, str]]] = {
    "set_training": {
        "learning_rate": (0.02, "learning_rate"),
        "batch_size": (3, "per_device_train_batch_size"),
        "weight_decay": (0.3, "weight_decay"),
        "num_epochs": (2.5, "num_train_epochs"),
        "max_steps": (17, "max_steps"),
        "gradient_accumulation_steps": (4, "gradient_accumulation_steps"),
        "seed": (11, "seed"),
        "gradient_checkpointing": (True, "gradient_checkpointing"),
        "activation_checkpointing": (True, "activation_checkpointing"),
    },
    "set_evaluate": {
        "strategy": ("epoch", "eval_strategy"),
        "steps": (7, "eval_steps"),
        "batch_size": (5, "per_device_eval_batch_size"),
        "accumulation_steps": (6, "eval_accumulation_steps"),
        "delay": (2.5, "eval_delay"),
        "loss_only": (True, "prediction_loss_only"),
    },
    "set_testing": {"batch_size": (5, "per_device_eval_batch_size"), "loss_only": (True, "prediction_loss_only")},
    "set_save": {
        "strategy": ("epoch", "save_strategy"),
        "steps": (7, "save_steps"),
        "total_limit": (3, "save_total_limit"),
        "on_each_node": (True, "save_on_each_node"),
    },
    "set_logging": {
        "strategy": ("epoch", "logging_strategy"),
        "steps": (7, "logging_steps"),
        "report_to": ("tensorboard", "report_to"),
        "level": ("error", "log_level"),
        "first_step": (True, "logging_first_step"),
        "nan_inf_filter": (True, "logging_nan_inf_filter"),
        "on_each_node": (True, "log_on_each_node"),
        "replica_level": ("critical", "log_level_replica"),
    },
    "set_optimizer": {
        "name": ("adafactor", "optim"),
        "learning_rate": (0.02, "learning_rate"),
        "weight_decay": (0.3, "weight_decay"),
        "beta1": (0.8, "adam_beta1"),
        "beta2": (0.95, "adam_beta2"),
        "epsilon": (1e-5, "adam_epsilon"),
        "args": ("a=1", "optim_args"),
    },
    "set_lr_scheduler": {
        "name": ("cosine", "lr_scheduler_type"),
        "num_epochs": (2.5, "num_train_epochs"),
        "max_steps": (17, "max_steps"),
        "warmup_steps": (9, "warmup_steps"),
        "warmup_ratio": (0.1, "warmup_ratio"),
    },
    "set_dataloader": {
        "train_batch_size": (3, "per_device_train_batch_size"),
        "eval_batch_size": (5, "per_device_eval_batch_size"),
        "drop_last": (True, "dataloader_drop_last"),
        "num_workers": (2, "dataloader_num_workers"),
        "pin_memory": (False, "dataloader_pin_memory"),
        "persistent_workers": (True, "dataloader_persistent_workers"),
        "prefetch_factor": (4, "dataloader_prefetch_factor"),
        "multiprocessing_context": ("spawn", "dataloader_multiprocessing_context"),
        "in_order": (False, "dataloader_in_order"),
        "auto_find_batch_size": (True, "auto_find_batch_size"),
        "ignore_data_skip": (True, "ignore_data_skip"),
        "sampler_seed": (11, "data_seed"),
    },
}
MARKS = {"set_training": "do_train", "set_testing": "do_predict", "set_evaluate": "do_eval"}  # set as well
TWINS = {"gradient_checkpointing", "activation_checkpointing"}  # two names of one setting


def plain(value: Any) -> Any:
    """The value of a member of an enumeration."""
    return getattr(value, "value", value)


def values(arguments: Any) -> dict[str, Any]:
    """Every field that a user may set."""
    return {name: plain(getattr(arguments, name)) for name in inspect.signature(type(arguments)).parameters}


@call(GROUP, phase=Phase.LOAD)
def training_arguments_by_methods(ctx: Context) -> Iterator[Check]:
    """Each argument of a set_ method of TrainingArguments sets its documented field, and no method sets others."""
    for name, known in SETTERS.items():
        method = getattr(type(stock_trainer.arguments(ctx)), name)
        given = {key: known[key] for key in inspect.signature(method).parameters if key in known}
        fields = {field for _, field in given.values()} | {MARKS.get(name, "")}
        for key, (value, field) in given.items():
            arguments = stock_trainer.arguments(ctx)
            before = values(arguments)
            returned = method(arguments, **{key: value})
            after = values(arguments)
            yield equal(f"{field} by {key} of {name}", plain(getattr(arguments, field)), value)
            others = {each for each in before if after[each] != before[each]} - fields - TWINS
            yield equal(f"other fields by {key} of {name}", str(sorted(others)), "[]")
            yield equal(f"what {name} returns", returned is arguments, bound=True)
        if name in MARKS:
            arguments = method(stock_trainer.arguments(ctx), **{"strategy": "steps"} if "strategy" in given else {})
            yield equal(f"{MARKS[name]} by {name}", getattr(arguments, MARKS[name]), bound=True)
