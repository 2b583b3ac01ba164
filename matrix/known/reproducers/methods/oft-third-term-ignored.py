"""OFT of peft computes with num_cayley_neumann_terms=3 what four terms give.

Shows with peft 0.18 to 0.21, not 0.17. No thread found on 2026-11-23; related: huggingface/peft#2805.
Exit code: 0 three terms, 1 four terms, 77 this peft has another OFT, anything else: something else happened.
"""

import inspect
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import OFTConfig, get_peft_model

if "num_cayley_neumann_terms" not in inspect.signature(OFTConfig).parameters:
    print("this peft's OFT has no series", file=sys.stderr)
    sys.exit(77)

SIZE = 8
torch.manual_seed(0)
values = 0.05 * torch.randn(1, SIZE * (SIZE - 1) // 2)
above = torch.zeros(SIZE, SIZE)
above[tuple(torch.triu_indices(SIZE, SIZE, 1))] = values[0]
skew, eye = above - above.T, torch.eye(SIZE)


def rotation(terms):
    layer = torch.nn.Linear(SIZE, SIZE, bias=False)
    layer.weight.data.copy_(eye)
    chosen = {"use_cayley_neumann": True, "num_cayley_neumann_terms": terms}
    model = get_peft_model(
        torch.nn.Sequential(layer), OFTConfig(target_modules=["0"], r=0, oft_block_size=SIZE, **chosen)
    )
    next(each for name, each in model.named_parameters() if "oft_R" in name).data.copy_(values)
    return model.eval()(eye).detach()


def off(matrix, terms):
    offs = []
    for last in (1, 2):  # peft 0.17 does not halve the last term
        factors = [1, *[2] * (terms - 2), last]
        wanted = sum(factor * torch.linalg.matrix_power(skew, power) for power, factor in enumerate(factors))
        offs += [float((matrix - each).abs().max()) for each in (wanted, wanted.T)]  # either direction
    return min(offs)


four, found, other = off(rotation(4), 4), off(rotation(3), 3), off(rotation(3), 4)
print(f"rotation of three terms, off the series: found {found:.2g} (off four terms {other:.2g}), expected < 1e-6")
sys.exit(3 if four > 1e-6 else 0 if found < 1e-6 else 1 if other < 1e-6 else 3)
