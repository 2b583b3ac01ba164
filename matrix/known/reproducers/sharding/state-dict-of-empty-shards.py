"""get_model_state_dict of FSDP1 raises NotImplementedError on ranks that hold nothing of a parameter.

Shows with torch 2.2 to 2.7; not with 2.8 and newer. Thread: pytorch/pytorch#141799 (reported).
Exit code: 0 right, 1 NotImplementedError, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    layer = torch.nn.Linear(8, 1)  # rank 1 has no row of it
    model = FullyShardedDataParallel(layer, use_orig_params=True, device_id=torch.device("cpu"))
    try:
        found = sorted(get_model_state_dict(model))
    except NotImplementedError as error:
        found = [f"NotImplementedError: {error}"]
    results.put((rank, found))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = dict(results.get() for _ in range(2))
    expected = {rank: ["bias", "weight"] for rank in range(2)}
    print(f"names in the state dict by rank: found {dict(sorted(found.items()))}, expected {expected}")
    sys.exit(0 if found == expected else 1 if "NotImplementedError" in str(found) else 3)
