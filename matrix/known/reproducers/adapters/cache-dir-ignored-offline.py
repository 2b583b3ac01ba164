"""Offline, peft looks for an adapter's weights in the default cache and branch, whatever cache_dir and revision say.

Shows with peft 0.14, not with 0.15. Thread: huggingface/peft#2373.
Exit code: 0 loaded, 1 LocalEntryNotFoundError, 77 this peft loads nothing offline, anything else: something else
happened.
"""

import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

other, cache = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": other.name}  # read on import

import torch
from peft import LoraConfig, PeftModel, get_peft_model

COMMIT = "0" * 40
repository = pathlib.Path(cache.name, "models--somebody--adapters")  # as a download leaves it
(repository / "refs").mkdir(parents=True)
(repository / "refs" / "main").write_text(COMMIT)


def base():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4))


adapted = get_peft_model(base(), LoraConfig(target_modules=["0"], init_lora_weights=False))
adapted.save_pretrained(repository / "snapshots" / COMMIT)
inputs = torch.ones(1, 4)
try:
    loaded = PeftModel.from_pretrained(base(), "somebody/adapters", cache_dir=cache.name)
    found = float((loaded.eval()(inputs) - adapted.eval()(inputs)).detach().abs().max())
except FileNotFoundError as error:
    found = type(error).__name__
except ConnectionError as error:  # OfflineModeIsEnabled
    print(error, file=sys.stderr)
    sys.exit(77)
print(f"outputs of an adapter in a cache of its own, off: found {found}, expected 0.0")
sys.exit({0.0: 0, "LocalEntryNotFoundError": 1}.get(found, 3))
