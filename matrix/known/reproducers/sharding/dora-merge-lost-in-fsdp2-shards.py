"""merge_adapter of DoRA on FSDP2's shards changes no weight; LoRA merges the same shards.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-22; related: modelscope/ms-swift#7118.
Exit code: 0 both merged, 1 only LoRA merged, 77 this torch has no fully_shard, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.multiprocessing as mp
from peft import LoraConfig, get_peft_model
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    print(f"torch {torch.__version__} has no public fully_shard", file=sys.stderr)
    sys.exit(77)


def adapted_model(use_dora):
    torch.manual_seed(0)
    config = LoraConfig(r=2, lora_alpha=6, target_modules=["0"], use_dora=use_dora, init_lora_weights=False)
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8)), config)
    for magnitude in [each for name, each in model.named_parameters() if "magnitude" in name]:
        torch.nn.init.uniform_(magnitude, 1.0, 2.0)  # as if trained
    return model


def merged_by_formula(use_dora):
    """LoRA: W + s B A. DoRA: m (W + s B A) / its norms by row (arXiv:2402.09353)."""
    held = dict(adapted_model(use_dora).base_model.model[0].named_parameters())
    merged = held["base_layer.weight"] + 6 / 2 * held["lora_B.default.weight"] @ held["lora_A.default.weight"]
    magnitude = next((each for name, each in held.items() if "magnitude" in name), merged.norm(dim=1))
    return magnitude[:, None] * merged / merged.norm(dim=1)[:, None]


def work(rank, folder, results):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    for use_dora in (False, True):
        model = fully_shard(adapted_model(use_dora), mesh=init_device_mesh("cpu", (2,)))
        model.merge_adapter()
        off = model.base_model.model[0].base_layer.weight.full_tensor() - merged_by_formula(use_dora)
        if rank == 0:
            results.put(float(off.abs().max()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
    lora, dora = results.get(), results.get()
    print(f"merged weight differs from the formula: found {lora:.2g} for LoRA and {dora:.2g} for DoRA, expected < 1e-5")
    sys.exit(3 if lora > 1e-5 else dora > 1e-5)
