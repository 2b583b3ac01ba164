"""A deep copy of an 8-bit weight has lost its numbers and scales.

Shows with bitsandbytes 0.43.1, not with 0.43.3. bitsandbytes-foundation/bitsandbytes#1231 fixes it.
Exit code: 0 the copy has both, 1 it has neither, anything else: something else happened.
"""

import copy
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.nn import Int8Params

numbers, scales = torch.ones(4, 8, dtype=torch.int8), torch.ones(4)
weight = Int8Params(numbers, requires_grad=False)
weight.CB, weight.SCB = numbers, scales  # as quantising sets them
made = copy.deepcopy(weight)
found = [getattr(made, name) is not None for name in ("CB", "SCB")]
print(f"numbers and scales in the copy: found {found}, expected [True, True]")
sys.exit(0 if all(found) else 1 if not any(found) else 3)
