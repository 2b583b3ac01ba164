"""save_pretrained of a PEFT model under FSDP1, with the full state dict, writes a file without tensors.

Shows with peft 0.21; not with 0.20. No thread found on 2026-11-22; related: huggingface/peft#3490.
Exit code: 0 right, 1 tensors are missing or wrong, anything else: something else happened.
"""

import functools
import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def adapted_model():
    torch.manual_seed(0)
    config = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(LlamaForCausalLM(LlamaConfig(**SIZES)), config)


def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    model = adapted_model()
    layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    sharded = FullyShardedDataParallel(
        model, auto_wrap_policy=layers, use_orig_params=True, device_id=torch.device("cpu")
    )
    with FullyShardedDataParallel.state_dict_type(sharded, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
        state = sharded.state_dict()
    if rank == 0:
        model.save_pretrained(folder, state_dict=state)
    dist.barrier()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (folder,), nprocs=2, start_method="fork")
        saved = load_file(f"{folder}/adapter_model.safetensors")
    trained = {name: each for name, each in adapted_model().named_parameters() if each.requires_grad}
    expected = {name.replace(".default", ""): each for name, each in trained.items()}
    right = sum(name in saved and torch.equal(saved[name], expected[name]) for name in expected)
    print(f"tensors of the adapter in the file: found {right}, expected {len(expected)}")
    sys.exit(right != len(expected))
