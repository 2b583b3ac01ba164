"""Imports the stack into the process that ranks are forked from, and checks whether the CUDA driver is initialised."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys

from cases.runtime.cuda_guard import uninitialised_cuda

# Modules that the process imports before ranks are forked from it. The first five are the stack. They import the others
# lazily on first use; the list has them so that a rank finds them ready. Modules that a version lacks are skipped.
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
    "transformers.models.qwen3.modeling_qwen3",
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
# Functions whose first call fills a cache of their module, each with an argument: transformers >= 5 compiles a thousand
# patterns of weight names, which took every rank about a tenth of a second.
FILLS = (("transformers.conversion_mapping", "get_checkpoint_conversion_mapping", "llama"),)
DONE: list[bool] = []  # not empty after a preload in this process, or in the one that it was forked from

CUDA_ERROR_NOT_INITIALIZED = 3  # cuda.h


def preload(*, to_fork: bool = False) -> None:
    """Import the stack; with ``to_fork``, without initialising CUDA where that can be avoided.

    Raises:
        Exception: whatever a required package raises: it is the stack's own error.
    """
    if DONE:
        clear_gpu_count()
        return
    with uninitialised_cuda() if to_fork else contextlib.nullcontext():
        for name in REQUIRED:
            importlib.import_module(name)
        # Errors do not matter here: a rank that needs the module meets them again and reports them.
        for name in LAZY:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        for name, function, argument in FILLS:
            with contextlib.suppress(Exception):
                getattr(importlib.import_module(name), function)(argument)
    DONE.append(True)


def clear_gpu_count() -> None:
    """Clear the number of GPUs that torch before 2.4 caches: the parent sees all GPUs, a rank only those of its job."""
    count = getattr(sys.modules.get("torch.cuda"), "device_count", None)
    clear = getattr(count, "cache_clear", None)
    if clear is not None:
        clear()


def cuda_driver_initialised() -> bool:
    """Return whether any code in this process called cuInit, with or without torch, without calling it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED)
