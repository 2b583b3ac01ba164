"""Accelerator.reduce(reduction="none") sums over ranks, although it is documented to perform no operation.

Shows with accelerate 0.29 to 1.15. Thread: huggingface/accelerate#4282 (a proposed fix, open).
Exit code: 0 what the rank gave, 1 the sum, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # not used
    found = Accelerator(cpu=True).reduce(torch.tensor(rank + 1.0), reduction="none")
    if rank == 0:
        results.put(float(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = results.get()
    print(f"value of rank 0 that reduces 1.0, while rank 1 reduces 2.0: found {found}, expected 1.0")
    sys.exit({1.0: 0, 3.0: 1}.get(found, 3))
