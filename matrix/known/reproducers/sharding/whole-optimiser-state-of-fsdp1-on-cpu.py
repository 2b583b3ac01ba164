"""The full optimiser state of FSDP1 on CPUs, gathered with cpu_offload=True, has wrong first moments.

Shows with torch 2.4 to 2.15. No thread found on 2026-11-22; related: pytorch/pytorch#188989 (the state of parameters).
Exit code: 0 right, 1 wrong moments, 77 this torch needs CUDA, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel

ROWS = torch.arange(16.0).reshape(2, 8) / 16


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    model = FullyShardedDataParallel(layers(), use_orig_params=True, device_id=torch.device("cpu"))
    optimiser = torch.optim.AdamW(model.parameters())
    model(ROWS[rank]).square().mean().backward()
    optimiser.step()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_optimizer_state_dict(model, optimiser, options=options).get("state", {})
    if rank == 0:
        results.put({name: [each["exp_avg"].tolist(), each["exp_avg_sq"].tolist()] for name, each in state.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        try:
            mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        except mp.ProcessRaisedException as error:
            print(f"gathering the state: {error}", file=sys.stderr)
            sys.exit(77 if "torch/cuda/" in str(error) else 2)  # torch before 2.4 looks for CUDA's memory
        found = results.get()
    one_process = layers()
    torch.stack([one_process(row).square().mean() for row in ROWS]).mean().backward()
    wrong = {"first": 0, "second": 0}  # after one step of AdamW: 0.1 g and 0.001 g²
    for name, parameter in one_process.named_parameters():
        first, second = (torch.tensor(each) for each in found[name])
        wrong["first"] += not torch.allclose(first, 0.1 * parameter.grad, rtol=1e-4, atol=1e-9)
        wrong["second"] += not torch.allclose(second, 0.001 * parameter.grad**2, rtol=1e-4, atol=1e-12)
    print(f"tensors of wrong moments: found {wrong['first']} first and {wrong['second']} second of 4, expected 0 and 0")
    sys.exit(any(wrong.values()))
