"""Preparing a loader whose sampler gives batches raises TypeError in one process.

Shows with accelerate 0.29 to 1.15. No thread found on 2026-11-26; huggingface/accelerate#687 added such loaders.
Exit code: 0 the loader's batches, 1 the TypeError, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import Accelerator
from torch.utils.data import BatchSampler, DataLoader

loader = DataLoader(torch.arange(6), sampler=BatchSampler(range(6), 3, drop_last=False), batch_size=None)
expected = [batch.tolist() for batch in loader]
try:
    found = [batch.tolist() for batch in Accelerator(cpu=True).prepare(loader)]
except TypeError as error:
    found = str(error)
print(f"batches of the prepared loader: found {found}, expected {expected}")
sys.exit(0 if found == expected else 1 if "multiple values for keyword argument 'batch_size'" in found else 3)
