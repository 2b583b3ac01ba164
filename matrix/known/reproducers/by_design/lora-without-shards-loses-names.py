"""A partly frozen model under FSDP1 with NO_SHARD has lost parameters after training, which FSDP1 deprecates.

Deprecated: https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/_init_utils.py warns on wrapping.
Exit code: 0 all parameters, 1 some are lost, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the behaviour

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(torch.nn.Linear):
    """A unit of FSDP that trains."""


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    frozen = torch.nn.Linear(8, 8).requires_grad_(requires_grad=False)
    model = FullyShardedDataParallel(
        torch.nn.Sequential(frozen, Block(8, 8)),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy.NO_SHARD,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    before = len(list(model.named_parameters()))
    model(torch.ones(2, 8)).sum().backward()
    if rank == 0:
        results.put((before, sorted(name for name, _ in model.named_parameters())))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        before, after = results.get()
    print(f"named parameters after a step: found {after}, expected 4, as before it: {before}")
    sys.exit(3 if before != 4 else len(after) != 4)
