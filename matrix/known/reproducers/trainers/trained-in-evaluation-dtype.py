"""After evaluate() with bf16_full_eval or fp16_full_eval, Trainer trains the model in 16 bits.

Shows with transformers 4.39 to 5.23. No thread found on 2026-11-23; related: huggingface/transformers#10268.
Exit code: 0 trained in float32, 1 trained in bfloat16, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False))
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (2, 8))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=1, bf16_full_eval=True, use_cpu=True, report_to="none", save_strategy="no"
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows)
    trainer.evaluate()
    seen = []
    model.lm_head.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    trainer.train()
found = {*seen, *(weight.dtype for weight in model.parameters())}
print(f"dtypes in training after an evaluation with bf16_full_eval: found {found}, expected {{torch.float32}}")
sys.exit(0 if found == {torch.float32} else 1 if found == {torch.bfloat16} else 3)
