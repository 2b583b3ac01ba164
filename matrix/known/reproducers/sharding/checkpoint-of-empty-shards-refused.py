"""A sharded checkpoint of FSDP1 with a parameter of one row does not load on two ranks: rank 1 misses other entries.

Shows with torch 2.5 to 2.15; not with 2.2 to 2.4. Thread: pytorch/pytorch#163480 (open).
Exit code: 0 loaded, 1 the entry beside the model is missed, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))  # rank 1 has nothing of the second


def sharded(module):
    model = FullyShardedDataParallel(module, use_orig_params=True, device_id=torch.device("cpu"))
    FullyShardedDataParallel.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return model


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    saved = {"model": sharded(layers()).state_dict(), "progress": {"epoch": 3}}
    dcp.save(saved, storage_writer=dcp.FileSystemWriter(f"{folder}/saved"))
    model = sharded(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
    state = {"model": model.state_dict(), "progress": {"epoch": 0}}
    try:
        dcp.load(state, storage_reader=dcp.FileSystemReader(f"{folder}/saved"))
        model.load_state_dict(state["model"])
        with FullyShardedDataParallel.summon_full_params(model):
            expected = layers().parameters()
            right = all(torch.equal(one, other) for one, other in zip(model.parameters(), expected, strict=True))
        found = "the weights" if right else "other weights"
    except CheckpointException as error:
        found = str(error).strip().splitlines()[-1]
    if rank == 0:
        results.put(found)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = results.get()
    print(f"loading a checkpoint: found {found}, expected the weights")
    sys.exit(0 if found == "the weights" else 1 if "Missing key in checkpoint state_dict: progress" in found else 3)
