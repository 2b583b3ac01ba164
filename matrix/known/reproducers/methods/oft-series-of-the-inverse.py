"""OFT with use_cayley_neumann=True, the default, rotates by the inverse of its rotation without.

Shows with peft 0.17 to 0.21. No thread found on 2026-11-23.
Exit code: 0 the same rotation, 1 its inverse, 77 this peft has another OFT, anything else: something else happened.
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

SIZE = 8
torch.manual_seed(0)
values = 0.05 * torch.randn(1, SIZE * (SIZE - 1) // 2)
above = torch.zeros(SIZE, SIZE)
above[tuple(torch.triu_indices(SIZE, SIZE, 1))] = values[0]
skew, eye = above - above.T, torch.eye(SIZE)


def rotation(*, series):
    layer = torch.nn.Linear(SIZE, SIZE, bias=False)
    layer.weight.data.copy_(eye)
    chosen = {"use_cayley_neumann": series, "num_cayley_neumann_terms": 8}
    model = get_peft_model(
        torch.nn.Sequential(layer), OFTConfig(target_modules=["0"], r=0, oft_block_size=SIZE, **chosen)
    )
    next(each for name, each in model.named_parameters() if "oft_R" in name).data.copy_(values)
    return model.eval()(eye).detach()


exact = torch.linalg.inv(eye + skew) @ (eye - skew)  # Cayley's transform
off = float((rotation(series=False) - exact).abs().max())
found, other = (float((rotation(series=True) - each).abs().max()) for each in (exact, exact.T))
print(f"rotation of the series, off the exact one: found {found:.2g} (off its inverse {other:.2g}), expected < 1e-4")
sys.exit(3 if off > 1e-4 else 0 if found < 1e-4 else 1 if other < 1e-4 else 3)
