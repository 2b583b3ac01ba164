"""With dispatch_batches=True, skip_first_batches skips batches of rank 0's loader; each step takes one per rank.

Shows with accelerate 1.10 to 1.15; hangs with 1.2. No thread found on 2026-11-23; related: huggingface/accelerate#4295.
Exit code: 0 as many steps as requested, 1 half as many, anything else: something else happened.
"""

import os
import signal
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration


def work(rank, folder, results):
    signal.alarm(60)  # accelerate 1.2 hangs
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # not used
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    loader = accelerator.prepare(torch.utils.data.DataLoader(list(range(16)), batch_size=2))
    whole = [batch.tolist() for batch in loader]
    rest = [batch.tolist() for batch in accelerator.skip_first_batches(loader, 2)]
    if rank == 0:
        results.put((whole, rest))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        whole, rest = results.get()
    print(f"batches of rank 0 after the first two are skipped: found {rest}, expected {whole[2:]}")
    sys.exit({2: 0, 1: 1}.get(next((n for n in range(len(whole)) if whole[n:] == rest), 3), 3))
