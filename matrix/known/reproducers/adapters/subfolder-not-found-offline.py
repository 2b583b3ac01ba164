"""Offline, peft looks for an adapter in a folder of a cached repository under subfolder/subfolder.

Shows with peft 0.15 to 0.21, not 0.14. No thread found on 2026-11-23; related: huggingface/peft#2373.
Exit code: 0 loaded, 1 LocalEntryNotFoundError, 77 this peft loads nothing offline, else: something else happened.
"""

import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

cache = tempfile.TemporaryDirectory()
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": cache.name}  # read on import

import torch
from peft import LoraConfig, PeftModel, get_peft_model

COMMIT = "0" * 40
repository = pathlib.Path(cache.name, "models--somebody--adapters")  # as a download leaves it
(repository / "refs").mkdir(parents=True)
(repository / "refs" / "main").write_text(COMMIT)
root = repository / "snapshots" / COMMIT


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4))


adapted = get_peft_model(model(), LoraConfig(target_modules=["0"], init_lora_weights=False))
for folder in (root, root / "inner"):
    adapted.save_pretrained(folder)
inputs = torch.ones(1, 4)
expected = adapted.eval()(inputs).detach()


def off(**where):
    loaded = PeftModel.from_pretrained(model(), "somebody/adapters", **where)
    return float((loaded.eval()(inputs).detach() - expected).abs().max())


try:
    whole = off()
except ConnectionError as error:  # OfflineModeIsEnabled
    print(error, file=sys.stderr)
    sys.exit(77)
try:
    found = off(subfolder="inner")
except FileNotFoundError as error:
    found = type(error).__name__
print(f"outputs of an adapter in a cached folder, off: found {found}, expected {whole}")
sys.exit(3 if whole else {0.0: 0, "LocalEntryNotFoundError": 1}.get(found, 3))
