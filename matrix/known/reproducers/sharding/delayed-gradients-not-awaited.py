"""With delay_all_reduce_named_params, DDP's backward pass returns before the delayed gradients are averaged.

DDP begins their all_reduce asynchronously and nothing waits for it. Shows with torch 2.2 to 2.15 on two gloo ranks.
No thread found on 2026-11-27; related: pytorch/pytorch#95669.
Exit code: 0 right, 1 gradients of one rank, 77 this version lacks the argument, anything else: something else happened.
"""

import inspect
import os
import sys
import tempfile
import time
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

ROWS = 1 << 18  # of 64 numbers: 64 MiB


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    first, large = torch.nn.Linear(64, 64), torch.nn.Linear(64, ROWS, bias=False)
    delayed = {"delay_all_reduce_named_params": [("1.weight", large.weight)]}
    model = DistributedDataParallel(torch.nn.Sequential(first, large), param_to_hook_all_reduce=first.weight, **delayed)
    (model(torch.ones(1, 64)).sum() * (1 + rank)).backward()
    found = large.weight.grad[:: ROWS // 64].clone()
    dist.barrier()
    time.sleep(1)
    if rank == 0:
        expected = 1.5 * first(torch.ones(64)).detach()  # the mean of one time and two times
        both = (found, large.weight.grad)
        results.put([float((each - expected).abs().max() / expected.abs().max()) for each in both])
    dist.destroy_process_group()


if __name__ == "__main__":
    if "delay_all_reduce_named_params" not in inspect.signature(DistributedDataParallel.__init__).parameters:
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
    found, later = results.get()
    print(f"delayed gradients off after the backward pass: found {found:.2g}, expected 0; a second later {later:.2g}")
    sys.exit(3 if later > 1e-5 else 0 if found <= 1e-5 else 1)
