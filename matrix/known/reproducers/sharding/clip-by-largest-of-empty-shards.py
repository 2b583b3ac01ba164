"""clip_grad_norm_ with norm_type=inf raises under FSDP2 if a rank holds no row of a parameter.

Shows with torch 2.7 to 2.15. No thread found on 2026-11-23; related: meta-pytorch/torchrec#3891.
Exit code: 0 right, 1 raises, 77 no FSDP2 on CPUs, anything else: something else happened.
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

INPUTS = torch.arange(8.0).reshape(2, 4)


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    model = torch.nn.Linear(4, 1)  # one row: rank 1 holds none
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    model(INPUTS).sum().backward()
    gradients = [parameter.grad.full_tensor() for parameter in model.parameters()]
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=float("inf")).full_tensor()
    if rank == 0:
        results.put((float(norm), float(torch.cat([each.flatten() for each in gradients]).abs().max())))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        try:
            mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        except mp.ProcessRaisedException as error:
            message = str(error).strip().splitlines()[-1]
            print(f"largest gradient: found {message}, expected a number")
            sys.exit(1 if "norm on an empty tensor" in message else 3)
        found, expected = results.get()
    print(f"largest gradient: found {found}, expected {expected}")
    sys.exit(0 if found == expected else 3)
