"""save_pretrained of an FSDP2 model with tied embeddings, with the full state dict, writes the tied matrix twice.

Shows with transformers 4.49 to 5.23. Thread: huggingface/transformers#48972 (reported, closed).
Exit code: 0 once, 1 twice, 77 this torch has no fully_shard, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from transformers import LlamaConfig, LlamaForCausalLM

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    print(f"torch {torch.__version__} has no public fully_shard", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True))
    if rank == 0:
        model.save_pretrained(f"{folder}/one")
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        model.save_pretrained(f"{folder}/two", state_dict=state)
    dist.barrier()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (folder,), nprocs=2, start_method="fork")
        names = [sorted(load_file(f"{folder}/{each}/model.safetensors")) for each in ("one", "two")]
    matrices = [[name for name in each if "embed" in name or "lm_head" in name] for each in names]
    print(f"matrices of 64 rows in the file: found {matrices[1]}, expected one, as from one process: {matrices[0]}")
    sys.exit(3 if len(matrices[0]) != 1 else len(matrices[1]) != 1)
