"""A stream with a length, split by accelerate with split_batches=True, announces more rows than it gives.

Shows with accelerate 0.29 to 1.15. Upstream: huggingface/accelerate#4118.
Exit code: 0 right, 1 the rows per rank of split_batches=False, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate.data_loader import IterableDatasetShard


class SizedStream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(12))

    def __len__(self):
        return 12


def announced_and_given(split):
    shard = IterableDatasetShard(SizedStream(), batch_size=4, num_processes=2, process_index=0, split_batches=split)
    return len(shard), len(list(shard))


whole, (found, given) = announced_and_given(split=False), announced_and_given(split=True)
print(f"rows that the shard of rank 0 announces with split_batches=True: found {found}, expected {given}")
sys.exit(3 if whole != (8, 8) or given != 6 else {6: 0, 8: 1}.get(found, 3))
