"""The stack's API as it changed over the years, met in one place: look at what is there, never at a version number."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cases.options import DType, Options, Storage

PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl")


def dtype(name: DType | Storage) -> Any:
    """Torch's dtype, e.g. ``torch.bfloat16`` for ``bf16``."""
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "uint8": torch.uint8}[name]


def dtype_name(dtype: Any) -> str:
    known = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    bare = str(dtype).rpartition(".")[2]
    return known.get(bare, bare)


def load_arguments(options: Options, device: Any) -> dict[str, Any]:
    """Keyword arguments of ``from_pretrained`` for the load dtype and the quantisation."""
    from transformers import PreTrainedModel

    # transformers 4.56 renamed torch_dtype to dtype; the old name went on working, with a warning.
    renamed = 'kwargs.pop("dtype"' in inspect.getsource(PreTrainedModel.from_pretrained)
    arguments: dict[str, Any] = {"dtype" if renamed else "torch_dtype": dtype(options.load_dtype)}
    if options.quant != "none":
        arguments["quantization_config"] = quantisation(options)
        arguments["device_map"] = {"": device}
    return arguments


def quantisation(options: Options) -> Any:
    from transformers import BitsAndBytesConfig

    if options.quant == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    known = inspect.signature(BitsAndBytesConfig.__init__).parameters
    storage = {"bnb_4bit_quant_storage": dtype(options.quant_storage)} if "bnb_4bit_quant_storage" in known else {}
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype(options.load_dtype),
        **storage,
    )


def has_adapter_autocast() -> bool:
    """Whether ``get_peft_model`` lets the adapters' dtype be chosen (peft >= 0.12)."""
    from peft import get_peft_model

    return "autocast_adapter_dtype" in inspect.signature(get_peft_model).parameters


def adapted(model: Any, config: Any, *, adapter_fp32: bool) -> Any:
    """``get_peft_model``, with ``autocast_adapter_dtype`` where the version has it."""
    from peft import get_peft_model

    return get_peft_model(model, config, **({"autocast_adapter_dtype": adapter_fp32} if has_adapter_autocast() else {}))


def fully_shard() -> Any:
    """FSDP2's ``fully_shard``, public since torch 2.6 and under a private name before.

    Raises:
        ImportError: this torch has no per-parameter ``fully_shard``.
    """
    for place in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
        try:
            found = getattr(importlib.import_module(place), "fully_shard", None)
        except ImportError:
            continue
        if found is not None and "reshard_after_forward" in inspect.signature(found).parameters:
            return found
    import torch

    raise ImportError(f"torch {torch.__version__} has no per-parameter fully_shard (FSDP2)")


def facts(device: str) -> dict[str, Any]:
    """Versions and builds of this environment, and the hardware it sees."""
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
    if device == "cuda":
        found["gpus"] = torch.cuda.device_count()
        found["gpu"] = torch.cuda.get_device_name(0)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found
