"""transformers casts weights to float8 before it computes their scales, if it quantises them on loading.

The scales are those of rounded weights, and the weights are rounded twice. Shows with transformers 5.17; not with 5.3
and 5.23. Reported as huggingface/transformers#48352.
Exit code: 0 right, 1 scales of cast weights, 77 no GPU for FP8, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch

if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9):
    print("FP8 weights need a GPU of compute capability 8.9", file=sys.stderr)
    sys.exit(77)

from transformers import AutoModelForCausalLM, FineGrainedFP8Config, LlamaConfig, LlamaForCausalLM

LARGEST, BLOCK = 448, 128
torch.manual_seed(0)
sizes = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2}
plain = LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))
with tempfile.TemporaryDirectory() as folder:
    plain.save_pretrained(folder)
    settings = {"quantization_config": FineGrainedFP8Config(), "device_map": {"": 0}}
    quantised = AutoModelForCausalLM.from_pretrained(folder, **settings)


def scales(weight):
    """The largest number of each block, divided by that of the format."""
    return weight.float().reshape(2, BLOCK, 2, BLOCK).abs().amax(dim=(1, 3)) / LARGEST


weight = plain.model.layers[0].self_attn.q_proj.weight.detach()
found = quantised.model.layers[0].self_attn.q_proj.weight_scale_inv.detach().float().cpu()
exact, cast = (float((found / scales(each) - 1).abs().max()) for each in (weight, weight.to(torch.float8_e4m3fn)))
print(f"scales of blocks: found {exact:.2g} off those of the weights and {cast:.2g} off those of cast ones, expected 0")
sys.exit(0 if exact < 1e-5 else 1 if cast < 1e-5 else 3)
