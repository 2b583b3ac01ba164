"""merge_adapter inside FSDP1's summon_full_params is lost: DoRA with every peft, LoRA with peft before 0.12.

Shows with peft 0.10 and 0.11 (both), 0.12 to 0.21 (DoRA). No thread found on 2026-11-22; near: huggingface/peft#1944.
Exit code: 0 both merged, 1 a merge is lost, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel


def adapted_model(use_dora):
    torch.manual_seed(0)
    config = LoraConfig(r=2, lora_alpha=6, target_modules=["0"], use_dora=use_dora, init_lora_weights=False)
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)), config)
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
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    for use_dora in (False, True):
        model = adapted_model(use_dora)
        sharded = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
        with FullyShardedDataParallel.summon_full_params(sharded):
            model.merge_adapter()
        with FullyShardedDataParallel.summon_full_params(sharded):
            weight = model.base_model.model[0].base_layer.weight.detach().clone()
        if rank == 0:
            results.put(float((weight - merged_by_formula(use_dora)).abs().max()))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        lora, dora = results.get(), results.get()
    print(f"merged weight differs from the formula: found {lora:.2g} for LoRA and {dora:.2g} for DoRA, expected < 1e-5")
    sys.exit(max(lora, dora) > 1e-5)
