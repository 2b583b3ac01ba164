"""Guesses from its name which class of a package a user's own class extends."""

from __future__ import annotations

import re
from typing import Final

EXTENDED: Final = (  # bases by what the names of users' classes contain
    (
        r"Model|For[A-Z]|LM$",
        ("transformers.PreTrainedModel", "transformers.GenerationMixin", "peft.PeftModel"),
    ),
    (r"Config$", ("transformers.PretrainedConfig",)),
    (r"Tokenizer", ("transformers.PreTrainedTokenizerBase",)),
    (r"Processor$", ("transformers.ProcessorMixin",)),
    (r"Trainer$", ("transformers.Trainer", "trl.SFTTrainer", "trl.DPOTrainer", "trl.GRPOTrainer", "trl.PPOTrainer")),
    (r"Arguments$", ("transformers.TrainingArguments",)),
    (r"Callback$", ("transformers.TrainerCallback",)),
)


def usual_bases(name: str) -> tuple[str, ...]:
    """Return the classes that a user's class of some name may extend; empty if the name does not tell."""
    return tuple(
        base
        for pattern, bases in EXTENDED
        if re.search(pattern, name, re.IGNORECASE if name.islower() else 0)
        for base in bases
    )


def all_bases() -> tuple[str, ...]:
    """Return the classes that users extend."""
    return tuple(base for _, bases in EXTENDED for base in bases)
