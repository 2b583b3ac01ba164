"""accelerate loads no safetensors file into a model that the device map puts on the disk as a whole.

Shows with accelerate 1.15. No thread found on 2026-11-26; related: huggingface/accelerate#4083.
Exit code: 0 right, 1 SafetensorError, 77 this accelerate refuses whole models on disk, else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import load_checkpoint_and_dispatch
from safetensors import SafetensorError
from safetensors.torch import save_file


def model():
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))


def off(file, places):
    """How far the outputs are from those of the model whose weights the file holds."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        plain, path = model(), f"{folder}/{file}"
        save = save_file if file.endswith(".safetensors") else torch.save
        save(plain.state_dict(), path)
        made = load_checkpoint_and_dispatch(model(), path, dict(zip("01", places, strict=True)), offload_folder=folder)
        return float((made(torch.ones(1, 3)) - plain(torch.ones(1, 3))).abs().max())


try:
    alike = [off("weights.bin", ("disk", "disk")), off("weights.safetensors", ("cpu", "disk"))]
except ValueError as error:
    print(error, file=sys.stderr)
    sys.exit(77)
try:
    found = off("weights.safetensors", ("disk", "disk"))
except SafetensorError as error:
    found = str(error)
print(
    f"outputs of a model loaded to the disk, off: found {found}, expected 0.0 (.bin, and partly on the disk: {alike})"
)
sys.exit(3 if any(alike) else {0.0: 0, "device disk is invalid": 1}.get(found, 3))
