"""With set_seed(device_specific=True), accelerate's seedable sampler shuffles differently on each rank.

Shows with accelerate 1.2 to 1.15. No thread found on 2026-11-23; related: huggingface/accelerate#3150.
Exit code: 0 every row once, 1 some rows twice and some never, anything else: something else happened.
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
from accelerate.utils import DataLoaderConfiguration, set_seed

ROWS = list(range(16))


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # not used
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(3, device_specific=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(ROWS, batch_size=2, shuffle=True))
    rows = torch.cat(list(loader))
    every = [torch.empty_like(rows) for _ in range(2)]
    dist.all_gather(every, rows)
    if rank == 0:
        results.put(sorted(torch.cat(every).tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = results.get()
    print(f"rows of an epoch on two ranks: found {found}, expected {ROWS}")
    sys.exit(0 if found == ROWS else 1 if len(found) == len(ROWS) else 3)
