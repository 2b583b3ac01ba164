"""skip_first_batches loses the epoch that set_epoch chose, so that a resumed epoch has the order of the first one.

Shows with accelerate 1.7 to 1.14, not with 1.5 or 1.15. huggingface/accelerate#4071 fixes it.
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
resumed = prepared()
resumed.set_epoch(1)
found = [batch.tolist() for batch in accelerator.skip_first_batches(resumed, 1)]
print(f"second epoch without its first batch: found {found}, expected {second[1:]}")
sys.exit(0 if found == second[1:] else 1 if found == first[1:] else 3)
