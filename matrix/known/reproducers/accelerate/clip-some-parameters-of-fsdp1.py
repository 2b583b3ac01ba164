"""accelerator.clip_grad_norm_ clips by the norm of each rank's shard if it gets not all parameters of an FSDP1 model.

Shown without GPUs by a cell with accelerate 1.15; the script needs two GPUs.
No thread found on 2026-11-24; related: huggingface/accelerate#4219.
Exit code: 0 the norm of all ranks, 1 that of a shard, 77 less than two GPUs, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin


def train(rank, found):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29518"}
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for parameter in model[0].parameters():  # as the base of an adapter
        parameter.requires_grad = False
    plugin = FullyShardedDataParallelPlugin(use_orig_params=True, cpu_ram_efficient_loading=False)
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = accelerator.prepare(model)
    accelerator.backward(model(torch.ones(2, 8, device=rank)).square().mean())
    exact = torch.stack([p.grad.square().sum() for p in model.parameters() if p.grad is not None]).sum()
    torch.distributed.all_reduce(exact)
    chosen = [p for p in model.parameters() if p.requires_grad]
    found[rank] = float(accelerator.clip_grad_norm_(chosen, 1e9)), float(exact.sqrt())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if torch.cuda.device_count() < 2:
        print("accelerate uses FSDP on accelerators only, and there are not two GPUs", file=sys.stderr)
        sys.exit(77)
    found = torch.multiprocessing.Manager().dict()
    torch.multiprocessing.spawn(train, args=(found,), nprocs=2)
    norms, exact = [found[rank][0] for rank in (0, 1)], found[0][1]
    print(f"norm of the trained gradients on each rank: found {norms}, expected {exact:.6g} on both")
    sys.exit(any(abs(norm / exact - 1) > 1e-4 for norm in norms))
