"""Shows whether gradients are right under FSDP2 with reentrant checkpointing.

    python fsdp2_reentrant_gradients.py [--device cpu]

Four blocks, each with a frozen and a trained layer, train for four steps of SGD, sharded by two ranks and whole, on the
same rows. Each line has the largest difference of a gradient in a step, relative to the largest gradient of its layer.
NCCL connects ranks, and gloo on CPUs, where torch needs 2.7. Exits with 1 if a difference is above 0.1 %, with 2 if
a rank ends with an error, with 77 if this torch or machine cannot run it. Needs only torch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile

RANKS, STEPS, SIZE = 2, 4, 64
MOST = 0.001
WRONG, FAILED, CANNOT = 1, 2, 77
FOUND = 3  # of a rank: 1 is the exit code of one that raises


def stack():
    """Four checkpointed blocks. Each adds ``tanh(frozen(x) + trained(x))`` to its input."""
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class TanhBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = nn.Linear(SIZE, SIZE, bias=False).requires_grad_(requires_grad=False)
            self.trained = nn.Linear(SIZE, SIZE, bias=False)

        def forward(self, x):
            return x + torch.tanh(self.frozen(x) + self.trained(x))

    class CheckpointedBlocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(TanhBlock() for _ in range(4))

        def forward(self, x):
            x = x.requires_grad_()
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=True)
            return x.square().mean()

    return CheckpointedBlocks()


def train(rank, device, store):
    import torch
    import torch.distributed as dist
    from torch.distributed._composable.fsdp import fully_shard  # its name in all releases that have it
    from torch.distributed.device_mesh import init_device_mesh

    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    whole, sharded = stack().to(device), stack().to(device)
    sharded.load_state_dict(whole.state_dict())
    mesh = init_device_mesh(device, (RANKS,))
    for module in (*sharded.blocks, sharded):
        fully_shard(module, mesh=mesh)
    optimisers = [torch.optim.SGD([w for w in m.parameters() if w.requires_grad], lr=20.0) for m in (whole, sharded)]
    worst = 0.0
    for step in range(STEPS):
        rows = torch.randn(RANKS, 8, SIZE, generator=torch.Generator().manual_seed(step)).to(device)
        (sum(whole(own) for own in rows) / RANKS).backward()
        sharded(rows[rank]).backward()
        both = zip(whole.parameters(), sharded.parameters(), strict=True)
        pairs = [(a.grad, b.grad.full_tensor()) for a, b in both if a.requires_grad]
        off = max(float((found - true).abs().max() / true.abs().max()) for true, found in pairs)
        if rank == 0:
            print(f"torch {torch.__version__}, {device}, step {step}: gradients off by {off:.2%}", flush=True)
        worst = max(worst, off)
        for each in optimisers:
            each.step()
            each.zero_grad()
    dist.barrier()
    os._exit(FOUND if worst > MOST else 0)  # before torch 2.8, destroying a gloo group can hang


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    import torch

    if device == "cuda" and torch.cuda.device_count() < RANKS:
        print(f"This machine has fewer than {RANKS} GPUs; --device cpu runs it without them.")
        return CANNOT
    try:
        from torch.distributed._composable.fsdp import fully_shard  # noqa: F401
    except ImportError:
        print(f"torch {torch.__version__} has no FSDP2.")
        return CANNOT
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=train, args=(rank, device, f"{folder}/store")) for rank in range(RANKS)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
    codes = {each.exitcode for each in ranks}
    return FAILED if codes - {0, FOUND} else WRONG if FOUND in codes else 0


if __name__ == "__main__":
    sys.exit(main())
