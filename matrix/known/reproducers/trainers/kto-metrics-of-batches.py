"""KTOTrainer averages metrics over batches, although these have unequal numbers of chosen and rejected rows.

Shows with trl 1.6 to 1.16; not with 0.29. No thread found on 2026-11-23; related: huggingface/trl#5820.
Exit code: 0 mean over rows, 1 mean over batches, 77 this trl has no KTOConfig, anything else: something else
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

if not hasattr(trl, "KTOConfig"):
    print(f"trl {trl.__version__} has no KTOConfig", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(64)}}
ROWS = [("w3 w4", "w5 w6", True), ("w9 w10", "w11 w12", True), ("w15 w16", "w17 w18", True), ("w21", "w22 w23", False)]
SPECIAL = {"pad_token": "w0", "bos_token": "w1", "eos_token": "w2"}
METRIC = "eval_logps/chosen"


def model(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False, pad_token_id=0))


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIAL)
    rows = Dataset.from_list([dict(zip(("prompt", "completion", "label"), row, strict=True)) for row in ROWS])
    arguments = trl.KTOConfig(folder, per_device_eval_batch_size=2, use_cpu=True, bf16=False, report_to="none")
    named = "tokenizer" if "tokenizer" in inspect.signature(trl.KTOTrainer).parameters else "processing_class"

    def metric(numbers):
        chosen = {"args": arguments, "train_dataset": rows, "eval_dataset": rows.select(numbers), named: tokenizer}
        trainer = trl.KTOTrainer(model=model(0), ref_model=model(1), **chosen)
        trainer.evaluate()
        return next(entry[METRIC] for entry in trainer.state.log_history if METRIC in entry)

    found, alone = metric(range(4)), [metric([number, 3]) for number in range(3)]
expected = sum(alone) / 3
of_batches = ((alone[0] + alone[1]) / 2 + alone[2]) / 2
print(f"{METRIC} of a batch with two chosen rows and one with one: found {found:.4f}, expected {expected:.4f}")
sys.exit(0 if abs(found - expected) < 1e-3 else 1 if abs(found - of_batches) < 1e-3 else 3)
