"""accelerate looks for a sharded optimiser checkpoint in the wrong folder if 'optimizer' is anywhere in its path.

Shows with accelerate 1.7 to 1.14; not with 1.15. Thread: huggingface/accelerate#4119 (fixed in 1.15).
Exit code: 0 restored, 1 not found, 77 no FSDP2 on CPUs, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import load_fsdp_optimizer, save_fsdp_optimizer
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import StateDictType

if torch.__version__ < (2, 7):
    print(f"FSDP2 of torch {torch.__version__} does not run on a CPU", file=sys.stderr)
    sys.exit(77)
from torch.distributed.fsdp import fully_shard


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model = fully_shard(layers, mesh=init_device_mesh("cpu", (2,)))
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimiser.step()
    sharded = StateDictType.SHARDED_STATE_DICT
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type=sharded, cpu_ram_efficient_loading=False)
    found = {}
    for name in ("optimizer_test", "test"):
        path = f"{folder}/{name}/step1"
        save_fsdp_optimizer(plugin, Accelerator(cpu=True), optimiser, model, path)
        try:
            load_fsdp_optimizer(plugin, Accelerator(cpu=True), optimiser, model, path)
            found[name] = "restored"
        except CheckpointException as error:  # "another": keys are missing, accelerate#3971
            missing = any(words in str(error) for words in ("/.metadata", "metadata is not None", "metadata is None"))
            found[name] = "no checkpoint there" if missing else "another error"
    if rank == 0:
        results.put(found)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = results.get()
    print(f"loading the optimiser from each folder: found {found}, expected the same from both")
    sys.exit({"restored": 0, "no checkpoint there": 1}.get(found["optimizer_test"], 3))
