"""Differences between versions of the stack's API. Inspects the API and never compares version numbers."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import TYPE_CHECKING, Any

from cases.model import tiny
from cases.runtime import rank_env
from cases.space import devices

if TYPE_CHECKING:
    from pathlib import Path

    from cases.space.options import DType, Options, Storage
    from cases.space.place import Place

PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl")


def dtype(name: DType | Storage) -> Any:
    """Torch's dtype, e.g. ``torch.bfloat16`` for ``bf16``."""
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "uint8": torch.uint8}[name]


def autocast_dtype(kind: str) -> Any:
    """The current autocast dtype of a device type; None if autocast is off."""
    import torch

    if hasattr(torch, "get_autocast_dtype"):  # torch >= 2.4 has one function for all devices
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    if kind == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def dtype_name(dtype: Any) -> str:
    known = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    bare = str(dtype).rpartition(".")[2]
    return known.get(bare, bare)


def load_arguments(options: Options, device: Any) -> dict[str, Any]:
    """Keyword arguments of ``from_pretrained`` for the load dtype and the quantisation."""
    from transformers import PreTrainedModel

    # transformers 4.56 renamed torch_dtype to dtype; the old name still works, with a warning.
    renamed = 'kwargs.pop("dtype"' in inspect.getsource(PreTrainedModel.from_pretrained)
    arguments: dict[str, Any] = {"dtype" if renamed else "torch_dtype": dtype(options.torch_dtype)}
    if options.quant != "none":
        if not options.prequantised:  # else the checkpoint brings its own
            arguments["quantization_config"] = quantisation(options)
        arguments["device_map"] = {"": device}
    return arguments


def quantisation(options: Options) -> Any:
    from transformers import BitsAndBytesConfig

    skipped = {"llm_int8_skip_modules": ["lm_head", tiny.SKIPPED]} if options.llm_int8_skip_modules else {}
    if options.quant == "int8":
        return BitsAndBytesConfig(load_in_8bit=True, **skipped)
    known = inspect.signature(BitsAndBytesConfig.__init__).parameters
    storage = (
        {"bnb_4bit_quant_storage": dtype(options.bnb_4bit_quant_storage)} if "bnb_4bit_quant_storage" in known else {}
    )
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=options.quant,
        bnb_4bit_use_double_quant=options.bnb_4bit_use_double_quant,
        bnb_4bit_compute_dtype=dtype(compute_dtype(options)),
        **storage,
        **skipped,
    )


def compute_dtype(options: Options) -> DType:
    return options.torch_dtype if options.bnb_4bit_compute_dtype == "load" else options.bnb_4bit_compute_dtype


def has_adapter_autocast() -> bool:
    """Return whether ``get_peft_model`` has ``autocast_adapter_dtype`` (peft >= 0.12)."""
    from peft import get_peft_model

    return "autocast_adapter_dtype" in inspect.signature(get_peft_model).parameters


def adapted(model: Any, config: Any, *, autocast_adapter_dtype: bool) -> Any:
    """``get_peft_model``, with ``autocast_adapter_dtype`` where the version has it."""
    from peft import get_peft_model

    return get_peft_model(
        model, config, **({"autocast_adapter_dtype": autocast_adapter_dtype} if has_adapter_autocast() else {})
    )


def adapter_from(folder: Path, base: Any, options: Options, *, to_train: bool) -> Any:
    """``PeftModel.from_pretrained``, with the adapters' dtype where the version lets it be chosen."""
    from peft import PeftModel

    known = "autocast_adapter_dtype" in inspect.signature(PeftModel.from_pretrained).parameters
    chosen = {"autocast_adapter_dtype": options.autocast_adapter_dtype} if known else {}
    return PeftModel.from_pretrained(base, folder, is_trainable=to_train, **chosen)


def tokenizer_argument(trainer: Any) -> str:
    """A trainer's keyword for the tokenizer: ``processing_class`` since transformers 4.46 and trl 0.12."""
    known = inspect.signature(trainer.__init__).parameters
    return "processing_class" if "processing_class" in known else "tokenizer"


def has_completion_mask() -> bool:
    """Return whether SFTTrainer accepts a mask of the tokens that count (trl >= 0.18)."""
    import trl

    return hasattr(trl, "SFTConfig") and "completion_only_loss" in inspect.signature(trl.SFTConfig).parameters


def text_arguments() -> dict[str, Any]:
    """Arguments about text rows for SFTTrainer versions that accept no tokenised rows; empty since trl 0.9."""
    import trl

    return {} if hasattr(trl, "SFTConfig") else {"dataset_text_field": "text", "packing": False}


def token_average() -> dict[str, bool]:
    """The argument that divides losses by the tokens of all processes, on by default since transformers 4.53."""
    from transformers import TrainingArguments

    name = "average_tokens_across_devices"
    return {name: True} if name in inspect.signature(TrainingArguments).parameters else {}


def training_arguments(wanted: dict[str, Any], *, sft: bool) -> Any:
    """``TrainingArguments``, or TRL's own of them where it has any (since 0.9)."""
    from transformers import TrainingArguments

    if not sft:
        return TrainingArguments(**wanted)
    import trl

    masked = {"completion_only_loss": True} if has_completion_mask() else {}
    return getattr(trl, "SFTConfig", TrainingArguments)(**wanted, **masked)


def fully_shard() -> Any:
    """FSDP2's ``fully_shard``.

    Raises:
        ImportError: this torch has none that works per parameter.
    """
    return fsdp2().fully_shard


def fsdp2() -> Any:
    """The module that FSDP2 is in, public since torch 2.6 and under a private name before.

    Raises:
        ImportError: this torch has no per-parameter ``fully_shard``.
    """
    for place in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
        try:
            module = importlib.import_module(place)
        except ImportError:
            continue
        found = getattr(module, "fully_shard", None)
        if found is not None and "reshard_after_forward" in inspect.signature(found).parameters:
            return module
    import torch

    raise ImportError(f"torch {torch.__version__} has no per-parameter fully_shard (FSDP2)")


def mesh(place: Place) -> Any:
    """A mesh of all ranks.

    Ranks that share a GPU pass their group: for CUDA, ``init_device_mesh`` creates one of NCCL, which refuses them. It
    uses their group in torch 2.3, which has no ``from_group``.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    if place.shares_gpu and hasattr(DeviceMesh, "from_group"):
        return DeviceMesh.from_group(dist.group.WORLD, place.kind)
    return init_device_mesh(place.kind, (place.world_size,))


def fsdp2_class() -> Any:
    """The class that ``fully_shard`` adds to a module's bases; torch 2.3 calls it ``FSDP``.

    Raises:
        ImportError: this torch has no per-parameter ``fully_shard``.
    """
    module = fsdp2()
    return module.FSDPModule if hasattr(module, "FSDPModule") else module.FSDP


def facts(device: str) -> dict[str, Any]:
    """Versions and builds of this environment. Does not initialise CUDA."""
    import platform
    from importlib import metadata

    import torch

    found: dict[str, Any] = {"python": platform.python_version(), "device": device}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    found["torch_build"] = torch.__version__
    found["torch_cuda"] = torch.version.cuda
    found["glibc"] = platform.libc_ver()[1]
    if devices.uses_gpus(device):
        found["torch_architectures"] = " ".join(torch.cuda.get_arch_list())
    if device == devices.CUDA:
        found["nccl_settings"] = rank_env.nccl_settings(os.environ)
    return found


def facts_of_gpus(device: str) -> dict[str, Any]:
    """The GPUs as torch reports them, and the NCCL that connects them.

    Raises:
        RuntimeError: torch cannot use them.
    """
    import torch

    nccl = {"nccl": ".".join(map(str, torch.cuda.nccl.version()))} if device == devices.CUDA else {}
    return {"gpu": torch.cuda.get_device_name(0), **nccl}
