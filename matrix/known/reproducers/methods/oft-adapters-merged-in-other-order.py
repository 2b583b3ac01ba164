"""Two active OFT adapters rotate inputs by the first and then by the second; merged, by the second first.

Shows with peft 0.17 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#1204, huggingface/peft#3608.
Exit code: 0 the same outputs, 1 others, 77 this peft has another OFT, anything else: something else happened.
"""

import copy
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

NAMES = ["first", "second"]
torch.manual_seed(0)
layer = torch.nn.Sequential(torch.nn.Linear(16, 16))
rotations = {name: 0.3 * torch.randn(2, 28) for name in NAMES}  # the upper triangles of two blocks of 8 by 8
inputs = torch.randn(4, 16)


def adapted():
    config = OFTConfig(target_modules=["0"], r=0, oft_block_size=8)
    model = get_peft_model(copy.deepcopy(layer), config, adapter_name="first")
    model.add_adapter("second", config)
    model.base_model.set_adapter(NAMES)
    for name, parameter in model.named_parameters():
        if "oft_R" in name:
            parameter.data.copy_(rotations[name.split(".")[-2]])
    return model.eval()


with torch.no_grad():
    expected = adapted()(inputs)
    off = [
        (adapted().merge_and_unload(adapter_names=order)(inputs) - expected).norm() for order in (NAMES, NAMES[::-1])
    ]
found, other = (float(each / expected.norm()) for each in off)
print(f"outputs of the merged layer, off those of the adapters: found {found:.2g}, expected < 1e-5")
sys.exit(0 if found < 1e-5 else 1 if other < 1e-5 else 3)
