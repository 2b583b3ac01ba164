"""Under FSDP1 with NO_SHARD, the second of two backward passes after two forward passes is not reduced over ranks.

Each rank keeps its own gradient of the second pass, and the replicas drift apart. Shows with torch 2.5 and 2.15.
No thread found on 2026-11-26; pytorch/pytorch#136861 is near.
Exit code: 0 right, 1 the second gradient is that of the rank, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

ROWS = ((1.0, 3.0), (10.0, 30.0))  # of two passes, by rank: the gradient of each is the row


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    chosen = {"sharding_strategy": ShardingStrategy.NO_SHARD, "device_id": torch.device("cpu")}
    model = FullyShardedDataParallel(torch.nn.Linear(1, 1, bias=False), **chosen)
    for loss in [model(torch.tensor([[row[rank]]])).sum() for row in ROWS]:
        loss.backward()
    results.put((rank, float(next(model.parameters()).grad)))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        gradients = dict(results.get() for _ in range(2))
    found, mean = [gradients[0], gradients[1]], [sum(row) / 2 for row in ROWS]
    expected, apart = [sum(mean)] * 2, [mean[0] + own for own in ROWS[1]]
    print(f"gradients of two backward passes on two ranks: found {found}, expected {expected}")
    sys.exit(0 if found == expected else 1 if found == apart else 3)
