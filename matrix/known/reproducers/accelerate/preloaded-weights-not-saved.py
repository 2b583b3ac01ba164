"""save_model of accelerate raises for a model that was dispatched with preload_module_classes.

Shows with accelerate 1.1.1 to 1.15, not 1.0.1. No thread found on 2026-11-23; related: huggingface/accelerate#3217.
Exit code: 0 saved whole, 1 ValueError or tensors are missing, anything else: something else happened.
"""

import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import Accelerator, dispatch_model
from safetensors.torch import load_file


class Halves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(4, 4)

    def forward(self, inputs):  # uses a weight without calling its module, for which preload_module_classes is made
        return torch.nn.functional.linear(inputs, self.dense.weight, self.dense.bias)


def saved(**more):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Halves())
    names = sorted(model.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        dispatched = dispatch_model(model, {"0": "cpu", "1": "disk"}, offload_dir=f"{folder}/disk", **more)
        Accelerator(cpu=True).save_model(dispatched, f"{folder}/saved")
        found = sorted(load_file(pathlib.Path(folder, "saved", "model.safetensors")))
    return f"{len(found)} of {len(names)}"


expected = saved()
try:
    found = saved(preload_module_classes=["Halves"])
except ValueError as error:
    found = error
print(f"tensors saved: found {found}, expected {expected}")
sys.exit(3 if expected != "4 of 4" else 0 if found == expected else 1)
