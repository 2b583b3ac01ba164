"""A Mixtral configuration with YaRN and without head_dim, as the published ones, raises TypeError.

Shows with transformers 5.3 to 5.23. No thread found on 2026-11-23; related: gradients-ai/G.O.D#1229.
Exit code: 0 works, 1 TypeError, 77 this Mixtral has no YaRN, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import MixtralConfig, MixtralForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def frequencies(**chosen):
    model = MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=2, max_position_embeddings=128, **chosen))
    return next(buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq"))


expected = frequencies(rope_scaling=dict(YARN), head_dim=8)
if torch.equal(expected, frequencies()):
    print("this transformers scales no positions of Mixtral", file=sys.stderr)
    sys.exit(77)
try:
    found = frequencies(rope_scaling=dict(YARN))
except TypeError as error:
    print(f"YaRN of a Mixtral without head_dim: found TypeError ({error}), expected that of head_dim=8")
    sys.exit(1)
print(f"YaRN of a Mixtral without head_dim: found {found.tolist()}, expected {expected.tolist()}")
sys.exit(0 if torch.equal(found, expected) else 3)
