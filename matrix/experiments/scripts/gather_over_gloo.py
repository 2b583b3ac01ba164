"""Shows which call that gathers sharded CUDA tensors over gloo ends with SIGSEGV: a line for each way to gather.

    python gather_over_gloo.py [--device cpu] [--only NAME ...] [--timeout 60]

Two ranks share the first GPU, as on ``ftmatrix run --device cuda-gloo``. Each way starts them anew. A line has the
seconds and, for each rank, ``right`` or ``WRONG`` by comparison with the tensor from before sharding, or how the rank
ended and the innermost Python frame of its threads then. Needs only torch, from 2.6 on. Exit code: 0 if every way is
right, 1 if not.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

WAYS = ("all_gather", "all_gather_into_tensor", "functional", "dtensor", "dtensor_on_cpu", "fsdp2", "fsdp2_on_cpu")
ROWS, COLUMNS = 1024, 64
FRAME = re.compile(
    r'(?m)^(?:Current thread|Thread) .*\n\s+(?:File ".*?([^/"]+)", line (\d+) in (\S+)|<no Python frame>)'
)


def gather(way, own, mesh):
    """Gather the rows of both ranks, each full of its rank's number."""
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.tensor import DTensor, Shard

    whole = own.new_empty(2 * ROWS, COLUMNS)
    if way == "all_gather":
        dist.all_gather(list(whole.chunk(2)), own)
    elif way == "all_gather_into_tensor":
        dist.all_gather_into_tensor(whole, own)
    elif way == "functional":
        whole = functional.all_gather_tensor(own, 0, mesh.get_group())
    elif way == "dtensor":
        whole = DTensor.from_local(own, mesh, [Shard(0)]).full_tensor()
    else:
        whole = DTensor.from_local(own.cpu(), dist.init_device_mesh("cpu", (2,)), [Shard(0)]).full_tensor()
    return whole


def gather_parameters(way, mesh):
    """Shard two layers by FSDP2, run a forward and a backward, and gather; returns the weights before and after."""
    import torch
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(COLUMNS, COLUMNS) for _ in range(2))).to(mesh.device_type)
    before = [weight.detach().cpu() for weight in model.parameters()]
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    model(torch.ones(8, COLUMNS, device=mesh.device_type)).sum().backward()
    after = [(weight.cpu() if way == "fsdp2_on_cpu" else weight).full_tensor() for weight in model.parameters()]
    return before, [weight.detach().cpu() for weight in after]


def run_rank(way, rank, store, device, timeout_s):
    faulthandler.enable()
    faulthandler.dump_traceback_later(0.8 * timeout_s, exit=True)
    import torch
    import torch.distributed as dist

    limit = timedelta(seconds=timeout_s / 2)
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2, timeout=limit)
    mesh = dist.init_device_mesh(device, (2,))
    if way.startswith("fsdp2"):
        expected, found = gather_parameters(way, mesh)
    else:
        whole = gather(way, torch.full((ROWS, COLUMNS), float(rank), device=device), mesh)
        expected, found = [torch.arange(2.0).repeat_interleave(ROWS)[:, None].expand(-1, COLUMNS)], [whole.cpu()]
    is_right = all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    print("right" if is_right else "WRONG", flush=True)
    dist.destroy_process_group()


def end_of(rank, timeout_s):
    """Return what a rank printed, or how it ended."""
    try:
        out, err = rank.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        rank.kill()
        return f"no end in {timeout_s:g} s"
    if not rank.returncode:
        return out.strip()
    cause = signal.Signals(-rank.returncode).name if rank.returncode < 0 else f"exit code {rank.returncode}"
    frames = ["{}:{} {}".format(*each) if each[0] else "no Python frame" for each in FRAME.findall(err)]
    return f"{cause}: {'; '.join(frames) or err.strip().rpartition(chr(10))[2]}"


def run_way(way, device, timeout_s):
    """Run two ranks; returns their ends."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, __file__, "--only", way, "--device", device, "--timeout", str(timeout_s)]
        ranks = [
            subprocess.Popen(
                [*argv, "--rank", str(rank), "--store", str(Path(folder, "store"))],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        return [end_of(rank, timeout_s) for rank in ranks]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one way")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        return run_rank(given.only[0], given.rank, given.store, given.device, given.timeout)
    wrong = False
    for way in given.only:
        began = time.monotonic()
        ends = run_way(way, given.device, given.timeout)
        wrong |= ends != ["right", "right"]
        print(f"{way:24} {time.monotonic() - began:5.1f} s | {' | '.join(ends)}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
