"""HuggingFaceStorageWriter of torch cannot consolidate tensors of whole numbers: it raises TypeError.

It asks torch.finfo for the size of every dtype. Shows with torch 2.15. Reported as pytorch/pytorch#192485.
Exit code: 0 right, 1 raises, 77 no consolidation, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import inspect

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

writer = getattr(dcp, "HuggingFaceStorageWriter", None)
if writer is None or "enable_consolidation" not in inspect.signature(writer).parameters:
    print(f"torch {torch.__version__} does not consolidate safetensors", file=sys.stderr)
    sys.exit(77)

from safetensors.torch import load_file


def stored(tensor):
    """The values in the consolidated file, or the message of what the save raises."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = {"fqn_to_index_mapping": {"one": 1}, "save_distributed": True, "enable_consolidation": True}
        try:
            dcp.save({"one": tensor}, storage_writer=writer(folder, **chosen))
        except (TypeError, dcp.api.CheckpointException) as error:
            return next((line for line in str(error).splitlines()[::-1] if "finfo" in line), str(error)).strip()
        (path,) = [each.path for each in os.scandir(folder) if each.name.endswith(".safetensors")]
        return load_file(path)["one"].tolist()


with tempfile.TemporaryDirectory() as group:
    dist.init_process_group("gloo", init_method=f"file://{group}/ranks", rank=0, world_size=1)
    floats, found = stored(torch.arange(3.0)), stored(torch.arange(3))
    dist.destroy_process_group()
print(f"consolidated whole numbers: found {found!r}, expected [0, 1, 2]")
if floats != [0.0, 1.0, 2.0]:
    sys.exit(3)
sys.exit(0 if found == [0, 1, 2] else 1 if "finfo" in str(found) else 3)
