"""load_checkpoint_in_model of accelerate refuses a pathlib.Path of a file, although it documents os.PathLike.

Shows with accelerate 0.29 to 1.15. No thread found on 2026-11-26; related: huggingface/accelerate#1028.
Exit code: 0 loads, 1 AttributeError, anything else: something else happened.
"""

import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import load_checkpoint_in_model
from safetensors.torch import save_file


def loaded(path):
    model = torch.nn.Linear(2, 2)
    try:
        load_checkpoint_in_model(model, path)
    except AttributeError as error:
        return str(error)
    return float(model.weight.detach().sum())


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "model.safetensors")
    save_file({"weight": torch.ones(2, 2), "bias": torch.ones(2)}, file, metadata={"format": "pt"})
    by_name, by_folder, found = loaded(str(file)), loaded(file.parent), loaded(file)
print(f"sum of the weights loaded from a path of a file: found {found}, expected {by_name}")
right = by_name == by_folder == 4.0
sys.exit(3 if not right else 0 if found == by_name else 1 if "has no attribute 'endswith'" in str(found) else 3)
