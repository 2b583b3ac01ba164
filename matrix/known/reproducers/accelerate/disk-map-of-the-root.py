"""dispatch_model of accelerate offloads nothing to the disk if the device map has only the root "".

Shows with accelerate 1.15. No thread found on 2026-11-23; related: huggingface/accelerate#4083.
Exit code: 0 right, 1 FileNotFoundError, 77 this accelerate refuses whole models on disk, else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import dispatch_model


def dispatched(device_map):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        return dispatch_model(model, device_map, offload_dir=folder)(torch.ones(1, 4))


expected = dispatched({"": "cpu"})
try:
    by_module = float((dispatched({"0": "disk", "1": "disk"}) - expected).abs().max())
except ValueError as error:
    print(error, file=sys.stderr)
    sys.exit(77)
try:
    found = float((dispatched({"": "disk"}) - expected).abs().max())
except FileNotFoundError as error:
    found = type(error).__name__
print(f"outputs of a model that is all on disk, off: found {found}, expected 0.0")
sys.exit(3 if by_module else {0.0: 0, "FileNotFoundError": 1}.get(found, 3))
