"""DPOTrainer subtracts the reference from sppo_hard and nca_pair in spite of reference_free.

Shows with trl 0.9 to 0.26. No thread found on 2026-11-26.
Exit code: 0 right, 1 the loss of the ratios to the reference, 77 this trl has no reference_free, anything
else: something else happened.
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

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(64)}}
ROWS = Dataset.from_list([{"prompt": "w3 w4", "chosen": " w5 w6 w7", "rejected": " w8 w9"}])
SPECIAL = {"pad_token": "w0", "eos_token": "w2", "bos_token": "w1"}
if not hasattr(getattr(trl, "DPOConfig", None), "reference_free"):
    print(f"trl {trl.__version__} has no reference_free of DPOTrainer", file=sys.stderr)
    sys.exit(77)


def model(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=2, initializer_range=0.15))


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    words = PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIAL)

    chosen = {"loss_type": "sppo_hard", "reference_free": True, "beta": 1.0}
    arguments = trl.DPOConfig(folder, **chosen, use_cpu=True, bf16=False, report_to="none")
    given = {"train_dataset": ROWS, "eval_dataset": ROWS}
    known = inspect.signature(trl.DPOTrainer.__init__).parameters
    given["processing_class" if "processing_class" in known else "tokenizer"] = words
    found = trl.DPOTrainer(model=model(0), ref_model=model(1), args=arguments, **given).evaluate()


def loss(chosen, rejected):  # equation 4.7 of arXiv:2405.00675 with a beta of 1
    return (chosen - 0.5) ** 2 + (rejected + 0.5) ** 2


expected, wrong = (
    loss(*(found[f"eval_{name}/{side}"] for side in ("chosen", "rejected"))) for name in ("logps", "rewards")
)
print(f"loss of sppo_hard with reference_free: found {found['eval_loss']:.4f}, expected {expected:.4f}")
near = [abs(found["eval_loss"] - each) < 1e-3 * each for each in (expected, wrong)]
sys.exit(0 if near[0] else 1 if near[1] else 3)
