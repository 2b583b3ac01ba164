"""Under gradient accumulation, the Trainer counts the router's auxiliary loss once for each batch, not their mean.

Shows with transformers 4.47 to 5.23, not with 4.39. No thread found on 2026-11-26; huggingface/transformers#48690 is
near. Exit code: 0 the mean of the batches, 1 their sum, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import MixtralConfig, MixtralForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 4}
ROWS = [[1, 2, 3, 4], [5, 6, 7, 8]]  # a batch each


def mixture(coefficient):
    torch.manual_seed(0)
    balanced = {"output_router_logits": True, "router_aux_loss_coef": coefficient}
    model = MixtralForCausalLM(MixtralConfig(**SIZES, **HEADS, **balanced))
    return model, next(each for name, each in model.named_parameters() if name.endswith("gate.weight"))


def stepped(coefficient):
    """The change of the router by one step of plain SGD over both batches."""
    model, router = mixture(coefficient)
    before = router.detach().clone()
    with tempfile.TemporaryDirectory() as folder:
        steps = {"max_steps": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": len(ROWS)}
        plain = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
        settings = TrainingArguments(folder, use_cpu=True, report_to=[], save_strategy="no", **steps, **plain)
        data = [{"input_ids": row, "labels": row} for row in ROWS]
        together = lambda rows: {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}  # noqa: E731
        Trainer(model, settings, train_dataset=data, data_collator=together).train()
    return before - router.detach()


model, router = mixture(1.0)
model.train()
expected = torch.zeros_like(router)
for row in ROWS:
    balance = model(torch.tensor([row])).aux_loss
    expected += torch.autograd.grad(balance, router)[0] / len(ROWS)
added = stepped(1.0) - stepped(0.0)
found = float((added * expected).sum() / expected.square().sum())
off = float((added - found * expected).norm() / expected.norm())
print(f"gradient of the auxiliary loss over its mean: found {found:.4f}, expected 1.0000")
sys.exit(3 if off > 1e-3 else 0 if abs(found - 1) < 1e-3 else 1 if abs(found - len(ROWS)) < 1e-3 else 3)
