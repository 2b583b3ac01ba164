"""DPOTrainer with use_weighting=True and loss_type="hinge" raises RuntimeError in the first backward.

Shows with trl 0.29 to 1.16; not with 0.12 to 0.26. No thread found on 2026-11-24; related: huggingface/trl#2141.
Exit code: 0 trains, 1 the loss was modified in place, 77 this trl has no use_weighting, anything else: something else
happened.
"""

import inspect
import json
import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import trl
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

if "use_weighting" not in dir(getattr(trl, "DPOConfig", None)):
    print(f"trl {trl.__version__} has no use_weighting", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(64)}}
ROWS = Dataset.from_list([{"prompt": "w3 w4", "chosen": "w5 w6 w7", "rejected": "w8 w9"}] * 2)
SPECIAL = {"pad_token": "w0", "bos_token": "w1", "eos_token": "w2"}
SETTINGS = {"use_weighting": True, "max_steps": 1, "use_cpu": True, "bf16": False, "report_to": "none"}


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False, pad_token_id=0))


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIAL)
    named = "tokenizer" if "tokenizer" in inspect.signature(trl.DPOTrainer).parameters else "processing_class"

    def trained(loss):
        arguments = trl.DPOConfig(folder, loss_type=loss, **SETTINGS)
        chosen = {"args": arguments, "train_dataset": ROWS, named: tokenizer}
        try:
            trl.DPOTrainer(model=model(), ref_model=model(), **chosen).train()
        except RuntimeError as error:
            return str(error).partition(":")[0]
        return "trains"

    sigmoid, hinge = trained("sigmoid"), trained("hinge")
print(f"use_weighting with hinge: {hinge}; with sigmoid: {sigmoid}")
raised = sigmoid == "trains" and "modified by an inplace operation" in hinge
sys.exit(0 if sigmoid == hinge == "trains" else 1 if raised else 3)
