"""After a forward pass with adapter_names raised, PEFT's hooks stay, and later passes use these names.

Shows with peft 0.10 to 0.21. Reported in huggingface/peft#3475.
Exit code: 0 as before, 1 the old names, 77 no adapter_names, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

torch.manual_seed(0)
raises = [True]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)

    def forward(self, rows):
        found = self.first(rows)
        if raises[0]:
            raise MemoryError("as a device without memory does")
        return found


config = LoraConfig(target_modules=["first"], init_lora_weights=False)
model = get_peft_model(Model(), config).eval()
rows = torch.randn(2, 4)
raises[0] = False
before = model(rows).detach()
try:
    base = model(rows, adapter_names=["__base__"] * 2).detach()
except TypeError:
    print("this peft has no adapter_names")
    sys.exit(77)
raises[0] = True
try:
    model(rows, adapter_names=["__base__"] * 2)
except MemoryError:
    raises[0] = False
after = model(rows).detach()
off, stale = float((after - before).abs().max()), float((after - base).abs().max())
print(f"outputs after an exception, off those before: found {off:.2g}, expected 0.0 (off the base alone: {stale:.2g})")
sys.exit(0 if off == 0.0 else 1 if stale == 0.0 else 3)
