"""Of two active C3A adapters, the second convolves the output of the first instead of the layer's inputs.

Shows with peft 0.17 to 0.21. Threads: huggingface/peft#3164, huggingface/peft#3429 (closed without a merge).
Exit code: 0 the updates add up, 1 they do not, 77 this peft has no C3A, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

if not hasattr(peft, "C3AConfig"):
    print(f"peft {peft.__version__} has no C3A", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)
layer = torch.nn.Linear(16, 16)
inputs = torch.randn(4, 16)
config = peft.C3AConfig(target_modules=["0"], block_size=8)
model = peft.get_peft_model(torch.nn.Sequential(layer), config, adapter_name="first")
model.add_adapter("second", config)
for name, parameter in model.named_parameters():
    if "c3a_kernel" in name:
        parameter.data.normal_()


def outputs(*names):
    model.base_model.set_adapter([*names])
    with torch.no_grad():
        return model.eval()(inputs)


with torch.no_grad():
    plain = layer(inputs)
expected = outputs("first") + outputs("second") - plain
off = float((outputs("first", "second") - expected).norm() / (expected - plain).norm())
print(f"update of both adapters, off the sum of each one's: found {off:.2g}, expected < 1e-4")
sys.exit(off > 1e-4)
