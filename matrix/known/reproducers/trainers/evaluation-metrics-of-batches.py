"""TRL's trainers average evaluation metrics over batches of unequal size, so each row of a smaller batch counts more.

Shows with trl 0.12 to 1.16. No thread found on 2026-11-23; related: huggingface/trl#7010.
Exit code: 0 mean over rows, 1 mean over batches, 77 this trl has no DPOConfig, anything else: something else
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

if not hasattr(trl, "DPOConfig"):
    print(f"trl {trl.__version__} has no DPOConfig", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(64)}}
ROWS = [("w3 w4", "w5 w6", "w7 w8"), ("w9 w10", "w11 w12", "w13 w14"), ("w15 w16", "w17 w18", "w19 w20")]  # no padding
SPECIAL = {"pad_token": "w0", "bos_token": "w1", "eos_token": "w2"}
METRIC = "eval_logps/chosen"


def model(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False, pad_token_id=0))


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIAL)
    rows = Dataset.from_list([dict(zip(("prompt", "chosen", "rejected"), row, strict=True)) for row in ROWS])
    arguments = trl.DPOConfig(folder, per_device_eval_batch_size=2, use_cpu=True, bf16=False, report_to="none")
    named = "tokenizer" if "tokenizer" in inspect.signature(trl.DPOTrainer).parameters else "processing_class"

    def metric(numbers):
        chosen = {"args": arguments, "train_dataset": rows, "eval_dataset": rows.select(numbers), named: tokenizer}
        trainer = trl.DPOTrainer(model=model(0), ref_model=model(1), **chosen)
        trainer.evaluate()
        return next(entry[METRIC] for entry in trainer.state.log_history if METRIC in entry)

    found, alone = metric(range(3)), [metric([number]) for number in range(3)]
expected = sum(alone) / 3
of_batches = ((alone[0] + alone[1]) / 2 + alone[2]) / 2
print(f"{METRIC} of a batch of two rows and one of one: found {found:.4f}, expected {expected:.4f}")
sys.exit(0 if abs(found - expected) < 1e-3 else 1 if abs(found - of_batches) < 1e-3 else 3)
