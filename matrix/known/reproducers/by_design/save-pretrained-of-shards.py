"""save_pretrained of a PEFT model under FSDP2 raises, unless it receives the gathered state dict.

Documented: https://huggingface.co/docs/accelerate/usage_guides/fsdp (save_pretrained with state_dict=...).
Thread: huggingface/accelerate#3487 (closed).
Exit code: 0 saved, 1 RuntimeError, 77 this torch has no fully_shard, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the behaviour

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from transformers import LlamaConfig, LlamaForCausalLM

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    print(f"torch {torch.__version__} has no public fully_shard", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = get_peft_model(LlamaForCausalLM(LlamaConfig(**SIZES)), LoraConfig(target_modules=["q_proj"]))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    try:
        model.save_pretrained(f"{folder}/{rank}")
        shapes = {tuple(each.shape) for each in load_file(f"{folder}/{rank}/adapter_model.safetensors").values()}
        found = f"shapes {sorted(shapes)}"
    except RuntimeError as error:
        found = f"RuntimeError: {error}"
    if rank == 0:
        results.put(found)
    dist.barrier()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = results.get()
    expected = "shapes [(8, 32), (32, 8)]"
    print(f"saving: found {found.splitlines()[0][:120]}, expected {expected}")
    sys.exit({expected: 0}.get(found, 1 if "invalid python storage" in found else 3))
