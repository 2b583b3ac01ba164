"""Measures what starting and ending a process group costs without ftmatrix: seconds for each step and layout.

    python process_group_times.py [--device cpu] [--repeats 5] [--timeout 120]

``solo`` is one rank, ``pair`` two, and ``two pairs`` two groups of two that start at once; each group sees its own GPUs
only, as the cells of ftmatrix do. NCCL connects ranks, and gloo on CPUs. A row has the median of all repeats after a
first one, which fills the page cache, and their range. Of a group, the slower rank counts; of two, the first group.
``used`` is the sum of the steps that CUDA and the group take: context, init, first and second all_reduce, destroy.
Layouts for which the machine has too few GPUs are left out. Needs only torch.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

STEPS = ("start", "import", "context", "init", "first", "second", "destroy")  # first, second: all_reduce
USED = STEPS[2:]
LAYOUTS = {"solo": (1,), "pair": (2,), "two pairs": (2, 2)}  # ranks of each group


def run_rank(rank, world, store, device, born, timeout_s):
    """Print the seconds of each step as JSON."""
    faulthandler.dump_traceback_later(0.8 * timeout_s, exit=True)
    marks = [born, time.time()]
    import torch
    import torch.distributed as dist

    marks.append(time.time())
    is_cuda = device == "cuda"
    place = torch.device("cuda", rank) if is_cuda else torch.device("cpu")
    torch.zeros(1, device=place)
    if is_cuda:
        torch.cuda.set_device(place)
        torch.cuda.synchronize()
    marks.append(time.time())
    limit, store = timedelta(seconds=timeout_s / 2), dist.FileStore(store, world)
    dist.init_process_group("nccl" if is_cuda else "gloo", store=store, rank=rank, world_size=world, timeout=limit)
    marks.append(time.time())
    for _ in range(2):
        summed = torch.ones(1024, device=place)
        dist.all_reduce(summed)
        if summed[0].item() != world:  # waits for the GPU
            sys.exit("all_reduce gave a wrong sum")
        marks.append(time.time())
    dist.destroy_process_group()
    marks.append(time.time())
    print(json.dumps([end - begin for begin, end in pairwise(marks)]), flush=True)


def start_group(world, first_gpu, store, device, timeout_s):
    gpus = ",".join(str(first_gpu + rank) for rank in range(world))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": gpus}
    argv = [sys.executable, __file__, "--device", device, "--timeout", str(timeout_s), "--store", str(store)]
    argv += ["--world", str(world)]
    return [
        subprocess.Popen(
            [*argv, "--rank", str(rank), "--born", str(time.time())], env=env, stdout=subprocess.PIPE, text=True
        )
        for rank in range(world)
    ]


def times_of(group, timeout_s):
    """Return the steps of the slower rank. Ends the script if a rank fails."""
    outs = []
    for rank in group:
        try:
            outs.append(rank.communicate(timeout=timeout_s)[0])
        except subprocess.TimeoutExpired:
            outs.append("")
    for rank in group:
        rank.kill()
    if any(rank.returncode or not out for rank, out in zip(group, outs, strict=True)):
        sys.exit(f"a rank failed; exit codes {[rank.returncode for rank in group]}")
    return dict(zip(STEPS, map(max, zip(*map(json.loads, outs), strict=True)), strict=True))


def measure(groups, device, timeout_s):
    """Start groups at once; returns the steps of the first."""
    with tempfile.TemporaryDirectory() as folder:
        places = [(world, sum(groups[:number])) for number, world in enumerate(groups)]
        started = [start_group(*each, Path(folder, str(each[1])), device, timeout_s) for each in places]
        first, *_ = [times_of(group, timeout_s) for group in started]  # waits for all
    return {**first, "used": sum(first[step] for step in USED)}


def gpu_count():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return len(listed.stdout.splitlines())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one group")
    for name, kind in {"rank": int, "world": int, "store": str, "born": float}.items():
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        return run_rank(given.rank, given.world, given.store, given.device, given.born, given.timeout)
    gpus = gpu_count() if given.device == "cuda" else sum(LAYOUTS["two pairs"])
    columns = (*STEPS, "used")
    print(f"{'layout':10}" + "".join(f"{name:>20}" for name in columns))
    for name, groups in LAYOUTS.items():
        if sum(groups) > gpus:
            continue
        runs = [measure(groups, given.device, given.timeout) for _ in range(given.repeats + 1)][1:]
        steps = [[run[column] for run in runs] for column in columns]
        cells = [f"{statistics.median(step):.2f} ({min(step):.2f}-{max(step):.2f})" for step in steps]
        print(f"{name:10}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
