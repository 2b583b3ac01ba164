"""accelerate's policy by size for FSDP2 chooses a list of layers as a unit, which fully_shard refuses.

Shows with accelerate 1.7 to 1.15. No thread found on 2026-11-26; related: pytorch/pytorch#167856.
accelerator.prepare does the same with a model's modules, but uses FSDP2 on GPUs only.
Exit code: 0 no list, 1 ValueError, 77 this accelerate or torch has no FSDP2, anything else: something else happened.
"""

import inspect
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

try:
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
    from torch.distributed.fsdp import fully_shard
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)

LEAST = 300  # parameters: more than a layer has, fewer than both
model = torch.nn.Module()
model.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))
plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2, auto_wrap_policy=size_based_auto_wrap_policy, min_num_params=LEAST, cpu_ram_efficient_loading=False
)
plugin.auto_wrap_policy, plugin.min_num_params = size_based_auto_wrap_policy, LEAST
early = ["size"] if len(inspect.signature(fsdp2_prepare_auto_wrap_policy).parameters) > 2 else []
policy = fsdp2_prepare_auto_wrap_policy(plugin, *early, model)
numbers = {"nonwrapped_numel": sum(each.numel() for each in model.parameters()), "min_num_params": LEAST}
expected = bool(size_based_auto_wrap_policy(model.layers, recurse=False, **numbers))  # of FSDP1
found = policy(model.layers)
try:
    refused = bool(found and fully_shard(model.layers) is None)
except ValueError as error:
    refused = "containers that do not implement forward" in str(error)
print(f"the policy makes a unit of a ModuleList: found {found}, expected {expected}; fully_shard refuses it: {refused}")
sys.exit({(False, False): 0, (True, True): 1}.get((found, refused), 3) if not expected else 3)
