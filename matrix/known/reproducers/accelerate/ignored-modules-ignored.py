"""accelerate drops ignored_modules under FSDP2 and shards modules that should stay whole. Needs one GPU.

Shows with accelerate 1.7; not with 1.15. Thread: huggingface/accelerate#3731 (fixed in 1.11).
Exit code: 0 left whole, 1 sharded, 77 no GPU or no FSDP2, anything else: something else happened.
"""

import inspect
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin

if "fsdp_version" not in inspect.signature(FullyShardedDataParallelPlugin).parameters:
    print("this accelerate has no FSDP2", file=sys.stderr)
    sys.exit(77)
if not torch.cuda.is_available():
    print("accelerate uses FSDP on accelerators only, and there is no GPU", file=sys.stderr)
    sys.exit(77)

os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29517"}
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, ignored_modules=[model[1]], cpu_ram_efficient_loading=False)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
sharded, _ = Accelerator(fsdp_plugin=plugin).prepare(model, optimiser)
found = sorted(name for name, each in sharded.named_parameters() if not hasattr(each, "full_tensor"))
print(f"parameters left whole: found {found}, expected ['1.bias', '1.weight']")
torch.distributed.destroy_process_group()
sys.exit({2: 0, 0: 1}.get(len(found), 3))
