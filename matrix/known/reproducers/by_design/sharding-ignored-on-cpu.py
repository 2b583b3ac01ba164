"""Accelerator(fsdp_plugin=...) on CPUs wraps the model by DistributedDataParallel, and logs nothing.

By design: https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py selects FSDP for accelerators.
Exit code: 0 FSDP, 1 DDP, 77 this version refuses, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the behaviour

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator, FullyShardedDataParallelPlugin


def work(rank, folder, results, plugin):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": 29500}
    os.environ.update({name: str(value) for name, value in world.items()})
    model = Accelerator(cpu=True, fsdp_plugin=plugin).prepare(torch.nn.Linear(8, 8))
    if rank == 0:
        results.put(type(model).__name__)
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        plugin = FullyShardedDataParallelPlugin(use_orig_params=True)
    except RuntimeError as error:  # of accelerate before 0.34
        print(f"refused: {error}", file=sys.stderr)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results, plugin), nprocs=2, start_method="fork")
        found = results.get()
    print(f"the model that Accelerator prepares with an FSDP plugin: found {found}, expected FullyShardedDataParallel")
    sys.exit({"FullyShardedDataParallel": 0, "DistributedDataParallel": 1}.get(found, 3))
