"""async_save of tensors on the CPU stores the values that they have when the file is written, not when it is called.

Shows with torch 2.3 to 2.6; not with 2.7 and newer. Thread: pytorch/pytorch#144657 (fixed by pytorch/pytorch#145408).
Exit code: 0 right, 1 later values, 77 this torch has no async_save, anything else: something else happened.
"""

import os
import sys
import tempfile
import time
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

if not hasattr(dcp, "async_save"):
    print(f"torch {torch.__version__} has no async_save", file=sys.stderr)
    sys.exit(77)


class SlowPlanner(dcp.DefaultSavePlanner):
    """Writing waits until the script has changed the tensor, as the next training step would."""

    def resolve_data(self, item):
        while weight.sum() > 0:
            time.sleep(0.01)
        return super().resolve_data(item)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        weight = torch.ones(4)
        saved = dcp.async_save({"weight": weight}, checkpoint_id=f"{folder}/saved", planner=SlowPlanner())
        weight.zero_()
        getattr(saved, "upload_completion", saved).result()
        state = {"weight": torch.full((4,), 7.0)}
        dcp.load(state, checkpoint_id=f"{folder}/saved")
    found = state["weight"].mean().item()
    print(f"value in the checkpoint: found {found}, expected 1.0", flush=True)
    # the end of a process group may hang before torch 2.8
    os._exit({1.0: 0, 0.0: 1}.get(found, 3))
