"""OFT's module_dropout leaves out no block of the rotation in training.

Shows with peft 0.17 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#1996.
Exit code: 0 blocks are left out, 1 none, 77 this peft has another OFT, anything else: something else happened.
"""

import inspect
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import OFTConfig, get_peft_model

if "use_cayley_neumann" not in inspect.signature(OFTConfig).parameters:
    print("this peft's OFT trains whole blocks", file=sys.stderr)
    sys.exit(77)

BLOCKS, SIZE, RATE = 8, 4, 0.5
torch.manual_seed(0)
layer = torch.nn.Linear(BLOCKS * SIZE, BLOCKS * SIZE, bias=False)
layer.weight.data.copy_(torch.eye(BLOCKS * SIZE))  # so that a block that is left out returns its inputs
config = OFTConfig(target_modules=["0"], r=0, oft_block_size=SIZE, module_dropout=RATE)
model = get_peft_model(torch.nn.Sequential(layer), config).train()
for parameter in model.parameters():
    if parameter.requires_grad:
        parameter.data.normal_(std=0.3)
inputs = torch.randn(1, BLOCKS * SIZE)
changed = (model(inputs) - inputs).view(BLOCKS, SIZE).abs().amax(1)
found, expected = int((changed < 1e-5).sum()), int(RATE * BLOCKS)
print(f"blocks of {BLOCKS} left out in training with module_dropout={RATE}: found {found}, expected {expected}")
sys.exit({expected: 0, 0: 1}.get(found, 3))
