"""set_epoch has no effect on a loader that skip_first_batches made.

Shows with accelerate 1.5 and before, not with 1.7. huggingface/accelerate#3556 fixes it.
Exit code: 0 the epoch's order, 1 that of the first epoch, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))


def prepared():
    set_seed(3)
    return accelerator.prepare(DataLoader(list(range(8)), batch_size=2, shuffle=True))


whole = prepared()
first, second = ([batch.tolist() for batch in whole] for _ in range(2))
rest = accelerator.skip_first_batches(prepared(), 1)
rest.set_epoch(1)
found = [batch.tolist() for batch in rest]
print(f"second epoch without its first batch: found {found}, expected {second[1:]}")
sys.exit(0 if found == second[1:] else 1 if found == first[1:] else 3)
