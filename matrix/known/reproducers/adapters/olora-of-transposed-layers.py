"""OLoRA starts from the untransposed weight of GPT-2's Conv1D: square layers start wrong, others raise.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#2991.
Exit code: 0 starts as the base model, 1 not, 77 this peft has no OLoRA, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model
from transformers.pytorch_utils import Conv1D

torch.manual_seed(0)
layer = Conv1D(8, 8)
torch.nn.init.normal_(layer.weight)
inputs = torch.randn(3, 8)
expected = (inputs @ layer.weight + layer.bias).detach()
config = LoraConfig(target_modules=["0"], r=2, lora_alpha=2, fan_in_fan_out=True, init_lora_weights="olora")
try:
    adapted = get_peft_model(torch.nn.Sequential(layer), config)
except ValueError as error:
    print(error, file=sys.stderr)
    sys.exit(77)
off = float((adapted(inputs) - expected).abs().max())
print(f"output of the adapted layer at its start, off that of the layer: found {off:.2g}, expected < 1e-5")
sys.exit(off > 1e-5)
