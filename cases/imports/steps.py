"""What users import and construct first: one function per step."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

IMPORTS: dict[str, tuple[str, ...]] = {
    "transformers": (
        "transformers",
        "transformers.AutoModelForCausalLM",
        "transformers.AutoTokenizer",
        "transformers.Trainer",
        "transformers.TrainingArguments",
        "transformers.BitsAndBytesConfig",
        "transformers.LlamaForCausalLM",
    ),
    "accelerate": ("accelerate", "accelerate.Accelerator"),
    "bitsandbytes": ("bitsandbytes",),
    "peft": ("peft", "peft.LoraConfig", "peft.get_peft_model", "peft.prepare_model_for_kbit_training"),
    "trl": ("trl", "trl.SFTTrainer", "trl.DPOTrainer"),
}


OF_TRL = ("import trl", "SFTConfig")


def import_names(paths: tuple[str, ...]) -> None:
    """Import modules, and names from modules."""
    for path in paths:
        module, _, name = path.rpartition(".")
        if module:
            exec(f"from {module} import {name}", {})  # noqa: S102 - as a user writes it
        else:
            exec(f"import {path}", {})  # noqa: S102


def training_arguments() -> object:
    from transformers import TrainingArguments

    return TrainingArguments(output_dir=tempfile.gettempdir(), report_to=[])


def sft_config() -> object:
    from trl import SFTConfig

    return SFTConfig(output_dir=tempfile.gettempdir(), report_to=[], bf16=False)


def quantisation() -> object:
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(load_in_4bit=True)


def accelerator() -> object:
    from accelerate import Accelerator

    return Accelerator(cpu=True)


def tiny_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=32,
        )
    )  # fmt: skip


def adapted_model() -> object:
    import torch
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_llama(), LoraConfig(r=2, target_modules=["q_proj"]))
    return model(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()


def steps() -> dict[str, Callable[[], object]]:
    """Return the steps by name, in order: an import for each package, then constructors."""
    found: dict[str, Callable[[], object]] = {}
    for package, paths in IMPORTS.items():
        found[f"import {package}"] = lambda paths=paths: import_names(paths)  # type: ignore[misc]
    return {
        **found,
        "TrainingArguments": training_arguments,
        "BitsAndBytesConfig": quantisation,
        "Accelerator": accelerator,
        "get_peft_model": adapted_model,
        "SFTConfig": sft_config,
    }
