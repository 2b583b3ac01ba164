"""RoAd cannot be merged into a layer whose bias has another dtype than its weight.

Shows with peft 0.18 to 0.21. No thread found on 2026-11-26; related: huggingface/peft#3691.
Exit code: 0 merged, 1 torch refuses the product, 77 this peft has no RoAd, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

if not hasattr(peft, "RoadConfig"):
    print(f"peft {peft.__version__} has no RoAd", file=sys.stderr)
    sys.exit(77)


def merged(dtype):
    """The dtypes of a bfloat16 layer with a bias of some dtype after merging, or the error."""
    layer = torch.nn.Linear(32, 32, dtype=torch.bfloat16)
    layer.bias.data = layer.bias.data.to(dtype)
    config = peft.RoadConfig(target_modules=["0"], group_size=16)
    try:
        peft.get_peft_model(torch.nn.Sequential(layer), config).merge_adapter()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return f"{layer.weight.dtype} {layer.bias.dtype}"


alike, found = merged(torch.bfloat16), merged(torch.float32)
expected = "torch.bfloat16 torch.float32"
print(f"merged: found {found!r}, expected {expected!r} (with a bfloat16 bias: {alike!r})")
if alike != "torch.bfloat16 torch.bfloat16":
    sys.exit(3)
sys.exit(0 if found == expected else 1 if "same dtype" in found or "scalar type" in found else 3)
