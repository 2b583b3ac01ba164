"""An adapter that was trained in bfloat16 continues in float32 when Trainer resumes.

Documented: https://huggingface.co/docs/peft/main/en/developer_guides/troubleshooting (dtype of the adapter).
Exit code: 0 bfloat16, 1 float32, 77 this peft has no autocast_adapter_dtype, anything else: something else happened.
"""

import inspect
import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the behaviour

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

if "autocast_adapter_dtype" not in inspect.signature(get_peft_model).parameters:
    print("this peft has no autocast_adapter_dtype", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ROWS = [{"input_ids": row, "labels": row} for row in torch.arange(16).reshape(2, 8)]


def trainer(folder, steps):
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(**SIZES)).to(torch.bfloat16)
    config = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
    model = get_peft_model(base, config, autocast_adapter_dtype=False)
    arguments = TrainingArguments(
        output_dir=folder, max_steps=steps, save_steps=1, use_cpu=True, report_to="none", optim="sgd"
    )
    return Trainer(model=model, args=arguments, train_dataset=ROWS)


def dtypes(model):
    return sorted({str(each.dtype) for each in model.parameters() if each.requires_grad})


with tempfile.TemporaryDirectory() as folder:
    first = trainer(folder, 1)
    first.train()
    resumed = trainer(folder, 2)
    resumed.train(resume_from_checkpoint=f"{folder}/checkpoint-1")
print(f"dtype of the adapter after resuming: found {dtypes(resumed.model)}, expected {dtypes(first.model)}")
sys.exit({"torch.bfloat16": 0, "torch.float32": 1}.get(*dtypes(resumed.model), 3))
