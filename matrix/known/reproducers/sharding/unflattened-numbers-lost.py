"""DefaultLoadPlanner(flatten_state_dict=False) loads tensors into the given dictionary, but no other values.

Shows with torch 2.5 to 2.15. No thread found on 2026-11-26; related: pytorch/pytorch#92823.
Exit code: 0 the saved number, 1 the number before loading, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import tempfile

import torch
import torch.distributed.checkpoint as dcp

folder = tempfile.TemporaryDirectory()
SAVED, BEFORE = 4, 0


def loaded(name, **chosen):
    """The number after loading a state of a tensor and a number, saved without flattening."""
    path = f"{folder.name}/{name}"
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    dcp.save({"weight": torch.ones(3), "step": SAVED}, checkpoint_id=path, planner=planner)
    state = {"weight": torch.zeros(3), "step": BEFORE}
    dcp.load(state, checkpoint_id=path, planner=dcp.DefaultLoadPlanner(flatten_state_dict=False, **chosen))
    if not bool((state["weight"] == 1).all()):
        sys.exit(3)
    return state["step"]


found, plain = loaded("first"), loaded("second", flatten_sharded_tensors=False)
print(f"number after loading: found {found}, expected {SAVED} (with flatten_sharded_tensors=False: {plain})")
sys.exit({SAVED: 0, BEFORE: 1}.get(found, 3))
