"""A tied model whose device map puts both tied weights on the disk raises KeyError, if the checkpoint has one of them.

Shows with accelerate 0.29 to 1.15. No thread found on 2026-11-26; related: huggingface/accelerate#4083.
Exit code: 0 right, 1 KeyError, anything else: something else happened.
"""

import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
from safetensors.torch import save_file

WEIGHT = torch.arange(66.0).reshape(11, 6)


class TiedHead(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(11, 6), torch.nn.Linear(6, 11, bias=False)
        self.middle = torch.nn.Linear(6, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.middle(self.embed(ids)))


def off(place):
    with init_empty_weights():
        model = TiedHead()
    model.head.weight = model.embed.weight
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        file = str(pathlib.Path(folder, "model.safetensors"))
        save_file({"embed.weight": WEIGHT, "middle.weight": torch.eye(6)}, file, metadata={"format": "pt"})
        places = {"embed": place, "middle": "cpu", "head": place}
        model = load_checkpoint_and_dispatch(model, file, places, offload_folder=str(pathlib.Path(folder, "away")))
        return float((model(torch.arange(3)) - WEIGHT[:3] @ WEIGHT.T).abs().max())


in_memory = off("cpu")
try:
    found = off("disk")
except KeyError as error:
    found = f"KeyError {error}"
print(f"outputs of a model with both tied weights on the disk, off: found {found}, expected {in_memory}")
sys.exit(3 if in_memory else {0.0: 0, "KeyError 'head.weight'": 1}.get(found, 3))
