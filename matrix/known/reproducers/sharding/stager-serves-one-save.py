"""A DefaultStager that two calls of async_save share raises KeyError in the second.

Shows with torch 2.12; not with 2.9 and 2.10, nor with 2.14 and newer. Thread: pytorch/pytorch#183413 (fixed).
Exit code: 0 both saved, 1 KeyError, 77 this torch has no DefaultStager, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

try:
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
except ImportError:
    print(f"torch {torch.__version__} has no DefaultStager", file=sys.stderr)
    sys.exit(77)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        names = ("use_async_staging", "use_pinned_memory", "use_shared_memory", "use_non_blocking_copy")
        stager = DefaultStager(StagingOptions(**dict.fromkeys(names, False)))  # as without CUDA
        found = []
        for number in (1.0, 2.0):
            try:
                saved = dcp.async_save(
                    {"weight": torch.full((4,), number)}, checkpoint_id=f"{folder}/{number}", async_stager=stager
                )
                getattr(saved, "upload_completion", saved).result()
                state = {"weight": torch.zeros(4)}
                dcp.load(state, checkpoint_id=f"{folder}/{number}")
                found.append(state["weight"].mean().item())
            except KeyError as error:
                found.append(f"KeyError: {error}")
    print(f"weights of two checkpoints: found {found}, expected [1.0, 2.0]", flush=True)
    os._exit(0 if found == [1.0, 2.0] else 1 if "KeyError: <class 'type'>" in str(found) else 3)
