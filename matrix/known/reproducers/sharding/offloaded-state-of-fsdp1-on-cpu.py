"""The full state dict of FSDP1 on CPUs, gathered with offload_to_cpu=True, ends in SIGSEGV or has freed tensors.

Shows with torch 2.2 to 2.13; not with 2.14. Thread: pytorch/pytorch#188990 (the fix).
Exit code: 0 right, 1 a rank was ended by SIGSEGV or tensors are wrong, anything else: something else happened.
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
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    model = FullyShardedDataParallel(layers(), use_orig_params=True, device_id=torch.device("cpu"))
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if rank == 0:
        results.put({name: tensor.tolist() for name, tensor in state.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        try:
            mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        except mp.ProcessExitedException as error:
            if error.signal_name != signal.SIGSEGV.name:
                raise
            print("gathering the state dict: found that a rank was ended by SIGSEGV, expected 4 tensors")
            sys.exit(1)
        found = results.get()
    expected = layers().state_dict()
    wrong = sum(name not in found or not torch.equal(torch.tensor(found[name]), expected[name]) for name in expected)
    print(f"missing or wrong tensors in the state dict: found {wrong} of {len(expected)}, expected 0")
    sys.exit(wrong > 0)
