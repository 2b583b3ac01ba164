"""The gradient norms by which two ranks of FSDP1 clip the trained parameters of LoRA, beside the norm of all shards.

SmolLM-135M with adapters of rank 8 on all linear layers, and another row of 256 tokens on each rank. accelerate has no
FSDP on a CPU; the script calls torch's clip_grad_norm_, as accelerate does if it gets not all parameters.
"""

from functools import partial

import peft
import torch
from released import on_ranks, report, smollm, tokens
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

LENGTH = 256


def norms(rank, _, results):
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    model = FullyShardedDataParallel(
        peft.get_peft_model(smollm(), config),
        auto_wrap_policy=policy,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    row = tokens(2 * LENGTH).view(2, 1, LENGTH)[rank]
    model(input_ids=row, labels=row, use_cache=False).loss.backward()
    trained = [each for each in model.parameters() if each.requires_grad]
    exact = torch.stack([each.grad.square().sum() for each in trained if each.grad is not None]).sum()
    torch.distributed.all_reduce(exact)
    found = torch.nn.utils.clip_grad_norm_(trained, 1e9)
    every = [torch.zeros(()) for _ in range(2)]
    torch.distributed.all_gather(every, found)
    if rank == 0:
        results.put([float(exact.sqrt()), *map(float, every)])


exact, *found = on_ranks(norms)
shares = {f"share_of_rank_{rank}": each / exact for rank, each in enumerate(found)}
report(f"{LENGTH} tokens on each rank", norm=exact, **shares)
