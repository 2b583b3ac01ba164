"""DDP's batched_powerSGD_hook raises in the first step in which it should compress.

Shows with torch 2.2 to 2.15. No thread found on 2026-11-26; related: pytorch/pytorch#75157.
Exit code: 0 compresses, 1 AssertionError, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

RANK, STEPS, PLAIN = 1, 4, 2
folder = tempfile.TemporaryDirectory()
dist.init_process_group("gloo", init_method=f"file://{folder.name}/store", rank=0, world_size=1)


def compressed(hook):
    """The singular values of the last gradient, or the name of the exception."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16, bias=False))
    arguments = {"matrix_approximation_rank": RANK, "start_powerSGD_iter": PLAIN}
    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, **arguments), hook)
    for _ in range(STEPS):
        model.zero_grad()
        try:
            model(torch.randn(8, 16)).square().mean().backward()
        except AssertionError as error:
            return type(error).__name__
    values = torch.linalg.svdvals(model.module.weight.grad)
    return f"rank {int((values > 1e-5 * values[0]).sum())}"


layers, batched = compressed(powerSGD_hook.powerSGD_hook), compressed(powerSGD_hook.batched_powerSGD_hook)
print(f"last gradient: found {batched}, expected {layers} as by powerSGD_hook")
sys.exit(3 if layers != f"rank {RANK}" else {layers: 0, "AssertionError": 1}.get(batched, 3))
