"""FSDP1 on one rank refuses weights whose data a script replaced between two passes.

Shows with torch 2.2 to 2.8, not with 2.9. Threads: pytorch/pytorch#151223, fixed by pytorch/pytorch#154369.
Exit code: 0 the new weights are used, 1 FSDP1 refuses them, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

inputs = torch.ones(1, 4)
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
    layer = torch.nn.Linear(4, 2, bias=False)
    model = FullyShardedDataParallel(layer, use_orig_params=True, device_id=torch.device("cpu"))
    expected = 2 * model(inputs).detach()
    for parameter in model.parameters():
        parameter.data = 2 * parameter.data
    try:
        right = torch.allclose(model(inputs), expected)
        found = "those of the new weights" if right else "others"
    except RuntimeError as error:
        found = " ".join(str(error).split())
    dist.destroy_process_group()
print(f"outputs of replaced weights: found {found}, expected those of the new weights")
sys.exit(0 if found.startswith("those") else 1 if "writeback when the parameter shape changes" in found else 3)
