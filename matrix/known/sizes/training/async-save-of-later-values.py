"""The weights in a checkpoint of async_save, where training goes on while it is written, beside those at the call.

SmolLM-135M with its moments of AdamW, 1.6 GB, to a local disk; a rate of 3e-4 and a row of 64 tokens for each step.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from released import off, report, smollm, tokens

KINDS = ("exp_avg", "exp_avg_sq")
row = tokens(64)
model = smollm().train()
optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)


def step():
    model(input_ids=row, labels=row, use_cache=False).loss.backward()
    optimiser.step()
    optimiser.zero_grad()


def state():
    """The weights and moments by name."""
    moments = {f"{n}.{kind}": each[kind] for n, each in optimiser.state_dict()["state"].items() for kind in KINDS}
    return {**model.state_dict(), **moments}


with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
    for _ in range(3):
        step()
    expected, steps = {name: each.detach().clone() for name, each in state().items()}, 0
    saved = dcp.async_save(state(), checkpoint_id=f"{folder}/saved")
    saved = getattr(saved, "upload_completion", saved)
    while not saved.done():
        step()
        steps += 1
    saved.result()
    found = {name: torch.zeros_like(each) for name, each in expected.items()}
    dcp.load(found, checkpoint_id=f"{folder}/saved")


def weights(tensors):
    return torch.cat([tensors[name].flatten() for name in model.state_dict()])


changed = sum(not torch.equal(found[name], expected[name]) for name in found) / len(found)
report(f"{steps} steps while saving", tensors_changed=changed, weights_off=off(weights(found), weights(expected)))
sys.stdout.flush()
os._exit(0)  # the end of a process group may hang before torch 2.8
