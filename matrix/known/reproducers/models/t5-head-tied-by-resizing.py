"""resize_token_embeddings replaces the head of a T5 1.1 checkpoint by its embeddings.

Shows with transformers 5.3 to 5.23; not with 4.56. No thread found on 2026-11-23; related: transformers#47620.
Exit code: 0 the rows of the head stay, 1 they are those of the embeddings, anything else: something else happened.
"""

import json
import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from safetensors.torch import save_file
from transformers import T5Config, T5ForConditionalGeneration

SIZES = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
PUBLISHED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}  # as in google/t5-v1_1-small

torch.manual_seed(0)
config = T5Config(**SIZES, **PUBLISHED, decoder_start_token_id=0)
state = T5ForConditionalGeneration(config).state_dict()
weights = {name: tensor.clone() for name, tensor in state.items() if "embed_tokens" not in name}
weights["lm_head.weight"] = torch.randn(64, 32)
with tempfile.TemporaryDirectory() as folder:
    save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
    pathlib.Path(folder, "config.json").write_text(json.dumps({**config.to_dict(), **PUBLISHED}))
    model = T5ForConditionalGeneration.from_pretrained(folder)
loaded = torch.equal(model.lm_head.weight, weights["lm_head.weight"])
model.resize_token_embeddings(80)
off = float((model.lm_head.weight[:64] - weights["lm_head.weight"]).abs().max())
tied = torch.equal(model.lm_head.weight[:64], weights["shared.weight"])
print(f"old rows of the head after resize_token_embeddings, off the checkpoint: found {off:.2g}, expected 0")
sys.exit(3 if not loaded else 0 if off == 0 else 1 if tied else 3)
