"""A prepared loader of which skip_first_batches skips all batches yields None.

Shows with accelerate 1.8 and before, not with 1.9. huggingface/accelerate#3659 fixes it.
Exit code: 0 no batch, 1 None, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
loader = accelerator.prepare(DataLoader(list(range(8)), batch_size=2))
rest = accelerator.skip_first_batches(loader, num_batches=len(loader))
found = next(iter(rest), "nothing")
print(f"first batch after all {len(loader)} are skipped: found {found}, expected nothing")
sys.exit(0 if found == "nothing" else 1 if found is None else 3)
