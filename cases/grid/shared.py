"""Settings that many rows share."""

from __future__ import annotations

from typing import Any

# The two documented ways to use FSDP1 with adapters.
NAMED: dict[str, Any] = {"strategy": "fsdp1", "use_orig_params": True}
FLAT: dict[str, Any] = {"strategy": "fsdp1", "use_orig_params": False}
QLORA: dict[str, Any] = {"quant": "nf4", "torch_dtype": "bf16"}
FP4: dict[str, Any] = {"quant": "fp4", "torch_dtype": "bf16"}
INT8: dict[str, Any] = {"quant": "int8", "torch_dtype": "bf16"}
DOUBLE: dict[str, Any] = {**QLORA, "bnb_4bit_use_double_quant": True}  # QLoRA as in its paper
SHARDABLE: dict[str, Any] = {"bnb_4bit_quant_storage": "bf16"}  # 4-bit storage that FSDP can shard
AS_DOCUMENTED: dict[str, Any] = {**SHARDABLE, "auto_wrap_policy": "peft", **FLAT}  # FSDP1 with a 4-bit base
TURING: dict[str, Any] = {"torch_dtype": "fp16", "autocast": "fp16"}  # for GPUs without bfloat16
PEFT_POLICY: dict[str, Any] = {"strategy": "fsdp1", "use_orig_params": False, "auto_wrap_policy": "peft"}
# The way FSDP1 is documented for adapters, the way of full fine-tuning, and the base that FSDP can shard quantised.
SHARDED_QLORA: dict[str, Any] = {"bnb_4bit_quant_storage": "bf16", **QLORA}
FSDP2_: dict[str, Any] = {"strategy": "fsdp2"}
