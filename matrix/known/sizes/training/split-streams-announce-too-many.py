"""The rows that a stream of 10,000 rows announces to a rank beside those that it gives: batches of 16, two ranks."""

import torch
from accelerate.data_loader import IterableDatasetShard
from released import report

ROWS, BATCH, RANKS = 10_000, 16, 2


class StreamOfRows(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(ROWS))

    def __len__(self):
        return ROWS


stream = IterableDatasetShard(StreamOfRows(), BATCH, num_processes=RANKS, process_index=0, split_batches=True)
given = sum(1 for _ in stream)
report(f"{ROWS} rows", announced=len(stream), given=given, off=len(stream) / given - 1)
