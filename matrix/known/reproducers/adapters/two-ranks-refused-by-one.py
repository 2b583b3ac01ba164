"""ignore_mismatched_sizes=True of peft raises a size mismatch if the adapter has rank 1 and the file has rank 2.

Shows with peft 0.11 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#1620.
Exit code: 0 ignored, 1 size mismatch, 77 this peft does not have the setting, anything else: something else happened.
"""

import inspect
import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

if "ignore_mismatched_sizes" not in inspect.signature(set_peft_model_state_dict).parameters:
    print("this peft has no ignore_mismatched_sizes", file=sys.stderr)
    sys.exit(77)


def adapted(rank):
    return get_peft_model(torch.nn.Sequential(torch.nn.Linear(4, 4)), LoraConfig(target_modules=["0"], r=rank))


def loaded(*, saved, rank):
    with tempfile.TemporaryDirectory() as folder:
        adapted(saved).save_pretrained(folder)
        model = adapted(rank)
        try:
            model.load_adapter(folder, adapter_name="default", ignore_mismatched_sizes=True)
        except RuntimeError as error:
            return "size mismatch" if "size mismatch" in str(error) else error
    return "ignored"


expected = loaded(saved=4, rank=1)
found = loaded(saved=2, rank=1)
print(f"file with two ranks for an adapter with one: found {found}, expected {expected}, as with four ranks")
sys.exit(3 if expected != "ignored" else {"ignored": 0, "size mismatch": 1}.get(found, 3))
