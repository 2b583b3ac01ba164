"""The files of the stack that mutants are drawn from: those whose code decides the numbers of a job."""

from __future__ import annotations

import re
from typing import Final

PACKAGES: Final = ("transformers", "peft", "accelerate", "trl", "bitsandbytes", "torch")
# Paths below site-packages. ``*`` matches within a folder.
TARGETS: Final = (
    "transformers/activations.py",
    "transformers/cache_utils.py",
    "transformers/core_model_loading.py",
    "transformers/data/data_collator.py",
    "transformers/generation/utils.py",
    "transformers/generation/logits_process.py",
    "transformers/generation/stopping_criteria.py",
    "transformers/integrations/bitsandbytes.py",
    "transformers/integrations/moe.py",
    "transformers/integrations/peft.py",
    "transformers/integrations/sdpa_attention.py",
    "transformers/loss/loss_utils.py",
    "transformers/masking_utils.py",
    "transformers/modeling_attn_mask_utils.py",
    "transformers/modeling_layers.py",
    "transformers/modeling_rope_utils.py",
    "transformers/modeling_utils.py",
    *(
        f"transformers/models/{name}/modeling_{name}.py"
        for name in ("llama", "qwen2", "qwen3", "gemma2", "mistral", "mixtral", "gpt2", "t5")
    ),
    "transformers/optimization.py",
    "transformers/pytorch_utils.py",
    "transformers/quantizers/quantizer_bnb_4bit.py",
    "transformers/quantizers/quantizer_bnb_8bit.py",
    "transformers/trainer.py",
    "transformers/trainer_optimizer.py",
    "transformers/trainer_pt_utils.py",
    "peft/mapping*.py",
    "peft/peft_model.py",
    "peft/tuners/*.py",
    "peft/tuners/*/*.py",
    "peft/utils/*.py",
    "accelerate/*.py",
    "accelerate/utils/fsdp_utils.py",
    "accelerate/utils/modeling.py",
    "accelerate/utils/operations.py",
    "accelerate/utils/other.py",
    "accelerate/utils/random.py",
    "trl/data_utils.py",
    "trl/models/*.py",
    "trl/trainer/*_trainer.py",
    "trl/trainer/utils.py",
    "bitsandbytes/*.py",
    "bitsandbytes/autograd/*.py",
    "bitsandbytes/backends/*.py",
    "bitsandbytes/backends/*/*.py",
    "bitsandbytes/nn/*.py",
    "bitsandbytes/optim/*.py",
    "torch/distributed/_composable/*.py",
    "torch/distributed/_composable/fsdp/*.py",
    "torch/distributed/checkpoint/*.py",
    "torch/distributed/fsdp/*.py",
    "torch/distributed/fsdp/_fully_shard/*.py",
    "torch/nn/parallel/distributed.py",
    "torch/nn/utils/clip_grad.py",
    "torch/optim/*.py",
)
PATTERN: Final = re.compile("|".join(re.escape(each).replace(r"\*", "[^/]*") for each in TARGETS))
