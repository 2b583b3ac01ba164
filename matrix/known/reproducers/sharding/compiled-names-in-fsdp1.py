"""get_model_state_dict of torch keeps the prefix of torch.compile in the names of a compiled model inside FSDP1.

Shows with torch 2.5 to 2.15. No thread found on 2026-11-26; related: pytorch/torchtitan#639.
Exit code: 0 right, 1 the names have the prefix, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel


def sharded(module):
    return FullyShardedDataParallel(module, use_orig_params=True, device_id=torch.device("cpu"))


def compiled(module):
    return torch.compile(module, backend="eager")


def names(model):
    return sorted(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)))


with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
    outside = names(compiled(sharded(torch.nn.Sequential(torch.nn.Linear(4, 4)))))
    inside = names(sharded(compiled(torch.nn.Sequential(torch.nn.Linear(4, 4)))))
    dist.destroy_process_group()
expected = ["0.bias", "0.weight"]
print(f"names of a compiled model in FSDP1: found {inside}, expected {expected} (compiled outside of it: {outside})")
if outside != expected:
    sys.exit(3)
sys.exit(0 if inside == expected else 1 if inside == [f"_orig_mod.{name}" for name in expected] else 3)
