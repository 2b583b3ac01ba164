"""FSDP2 on CPUs sums the gradients of two ranks over gloo, where it should average them.

Shows with torch 2.7 and 2.8; not with 2.9 and newer. Thread: pytorch/pytorch#162338 (reported).
Exit code: 0 averaged, 1 summed, 77 this torch has no FSDP2 on CPUs, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh

if torch.__version__ < (2, 7):
    print(f"FSDP2 of torch {torch.__version__} does not run on a CPU", file=sys.stderr)
    sys.exit(77)
from torch.distributed.fsdp import fully_shard


def rows(rank):
    return torch.arange(8.0).reshape(2, 4) + 10 * rank


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    model(rows(rank)).square().mean().backward()
    gradient = model.weight.grad.full_tensor()
    if rank == 0:
        results.put(gradient.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = torch.tensor(results.get())
    torch.manual_seed(0)
    one_process = torch.nn.Linear(4, 3)
    torch.stack([one_process(rows(rank)).square().mean() for rank in (0, 1)]).mean().backward()
    ratio = float(found.norm() / one_process.weight.grad.norm())
    print(f"gradient on two ranks / gradient in one process: found {ratio:.4f}, expected 1.0000")
    sys.exit({1.0: 0, 2.0: 1}.get(round(ratio, 4), 3))
