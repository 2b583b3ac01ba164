"""Imports the stack into the parent that ranks are forked from, and tells whether that made it unfit for forking."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys

from cases.runtime.cuda_guard import untouched

# Imported by the parent that ranks are forked from. The first five are the stack; the rest are what these import
# lazily on first use, named here so that a rank finds them ready. One that a version lacks is passed over.
REQUIRED = ("torch", "transformers", "accelerate", "peft", "bitsandbytes")
LAZY = (
    "torch.distributed.fsdp",
    "torch.distributed.fsdp._fully_shard",
    "torch.distributed._composable.fsdp",
    "torch.distributed.algorithms.ddp_comm_hooks",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.device_mesh",
    "torch.distributed.tensor",
    "torch.distributed.optim",
    "torch.nn.parallel",
    "torch.testing._internal",
    "torch.utils.checkpoint",
    "torch.utils.serialization",
    "torch.optim.adamw",
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "transformers.integrations.bitsandbytes",
    "transformers.models.auto.modeling_auto",
    "transformers.models.gemma2.modeling_gemma2",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "transformers.models.mistral.modeling_mistral",
    "transformers.models.mixtral.modeling_mixtral",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.models.t5.modeling_t5",
    "transformers.quantizers.auto",
    "transformers.quantizers.quantizer_bnb_4bit",
    "transformers.quantizers.quantizer_bnb_8bit",
    "transformers.utils.quantization_config",
    "numpy.ctypeslib",
    "peft.tuners.lora.bnb",
    "peft.utils.other",
    "peft.utils.transformers_weight_conversion",
    "safetensors.torch",
    "datasets",
    "transformers.trainer",
    "trl.trainer.sft_trainer",
)
# Functions that fill a cache of their module when they are first called, and what they are called with: transformers
# >= 5 compiles a thousand patterns of weights' names, which took every rank about a tenth of a second.
FILLS = (("transformers.conversion_mapping", "get_checkpoint_conversion_mapping", "llama"),)
DONE: list[bool] = []  # so far in this process, or in the one that it was forked from

CUDA_ERROR_NOT_INITIALIZED = 3  # cuda.h


def preload(*, to_fork: bool = False) -> None:
    """Import the stack; ``to_fork``, without initialising CUDA as far as that can be helped.

    Raises:
        Exception: whatever a required package raises, for that is the stack's own error.
    """
    if DONE:
        count_gpus_anew()
        return
    with untouched() if to_fork else contextlib.nullcontext():
        for name in REQUIRED:
            importlib.import_module(name)
        # Any error may be: a rank that needs the module meets it again and says so.
        for name in LAZY:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        for name, function, argument in FILLS:
            with contextlib.suppress(Exception):
                getattr(importlib.import_module(name), function)(argument)
    DONE.append(True)


def count_gpus_anew() -> None:
    """Forget how many there are, which torch before 2.4 remembers: the parent sees all, a rank those of its job."""
    count = getattr(sys.modules.get("torch.cuda"), "device_count", None)
    forget = getattr(count, "cache_clear", None)
    if forget is not None:
        forget()


def cuda_driver_initialised() -> bool:
    """Whether anything in this process called cuInit, which torch need not know of; asking does not call it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED)
