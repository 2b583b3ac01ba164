"""save_pretrained of a prompt-tuning adapter under FSDP2, with the full state dict, raises RuntimeError.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-22; related: pytorch/pytorch#153354.
Exit code: 0 saved, 1 RuntimeError about DTensor, 77 this torch has no fully_shard, anything else: something else.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from peft import PromptTuningConfig, get_peft_model
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


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(**SIZES))
    model = get_peft_model(base, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    expected = next(each for each in model.parameters() if each.requires_grad).detach().clone()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        try:
            model.save_pretrained(folder, state_dict=state)
            (saved,) = load_file(f"{folder}/adapter_model.safetensors").values()
            results.put("the prompt" if torch.equal(saved, expected) else "another tensor")
        except RuntimeError as error:
            results.put(f"RuntimeError: {error}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = results.get()
    print(f"saving: found {found.splitlines()[0][:120]}, expected the prompt")
    sys.exit(0 if found == "the prompt" else 1 if "mixed torch.Tensor and DTensor" in found else 3)
