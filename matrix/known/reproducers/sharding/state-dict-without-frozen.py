"""get_model_state_dict of FSDP1 without frozen parameters, whole and offloaded, raises KeyError on rank 1.

Shows with torch 2.14 and 2.15; older ones crash. No thread found on 2026-11-22;
near: pytorch/pytorch#105379, pytorch/pytorch#169448 (other errors of state dicts).
Exit code: 0 right, 1 KeyError, 77 SIGSEGV comes first, anything else: something else happened.
"""

import os
import signal
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    layers[0].requires_grad_(requires_grad=False)
    model = FullyShardedDataParallel(layers, use_orig_params=True, device_id=torch.device("cpu"))
    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    try:
        names = sorted(get_model_state_dict(model, options=options))
    except KeyError as error:
        names = [f"KeyError: {error}"]
    results.put((rank, names))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        try:
            mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        except mp.ProcessExitedException as error:
            if error.signal_name != signal.SIGSEGV.name:
                raise
            print("a rank was ended by SIGSEGV, see offloaded-state-of-fsdp1-on-cpu.py", file=sys.stderr)
            sys.exit(77)
        found = dict(results.get() for _ in range(2))
    expected = {0: ["1.bias", "1.weight"], 1: []}
    print(f"names in the state dict by rank: found {found}, expected {expected}")
    sys.exit(0 if found == expected else 1 if "KeyError" in str(found) else 3)
