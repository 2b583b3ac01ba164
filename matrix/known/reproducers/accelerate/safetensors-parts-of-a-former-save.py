"""Accelerator.save_model to safetensors leaves the parts of a former save with more parts in the folder.

Shows with accelerate 0.29 to 1.15. No thread found on 2026-11-26; related: huggingface/accelerate#2795.
Exit code: 0 removed, as with pickled files, 1 left, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import Accelerator

MANY, FEW = 1100, 3000  # bytes of a part
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(6)])
accelerator = Accelerator(cpu=True)


def left(safe):
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_model(model, folder, max_shard_size=MANY, safe_serialization=safe)
        first = {name for name in os.listdir(folder) if "-of-" in name}
        accelerator.save_model(model, folder, max_shard_size=FEW, safe_serialization=safe)
        return len(first & set(os.listdir(folder))), len(first)


(found, parts), (pickled, _) = left(safe=True), left(safe=False)
print(f"parts of the first save, of {parts}, that are left: found {found}, expected {pickled}")
sys.exit(3 if pickled or parts < 2 else {0: 0, parts: 1}.get(found, 3))
