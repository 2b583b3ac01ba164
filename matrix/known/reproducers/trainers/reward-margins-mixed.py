"""RewardTrainer subtracts the margins of all rows from each row's rewards: a vector from a column.

Shows with trl 0.12 to 0.23; not with 0.29. No thread found on 2026-11-23; related: modelscope/ms-swift#9927.
Exit code: 0 each row's own margin, 1 not, 77 this trl has no RewardConfig, anything else: something else happened.
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
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

if not hasattr(trl, "RewardConfig"):
    print(f"trl {trl.__version__} has no RewardConfig", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(64)}}
ROWS = [("w3 w4 w5", "w6 w7 w8", 0.0), ("w9 w10 w11", "w12 w13 w14", 3.0)]
SPECIAL = {"pad_token": "w0", "bos_token": "w1", "eos_token": "w2"}
METRIC = "eval_loss"


def model():
    torch.manual_seed(0)
    return LlamaForSequenceClassification(
        LlamaConfig(**SIZES, use_cache=False, pad_token_id=0, num_labels=1, initializer_range=0.5)
    )


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIAL)
    rows = Dataset.from_list([dict(zip(("chosen", "rejected", "margin"), row, strict=True)) for row in ROWS])
    arguments = trl.RewardConfig(folder, per_device_eval_batch_size=2, use_cpu=True, bf16=False, report_to="none")
    named = "tokenizer" if "tokenizer" in inspect.signature(trl.RewardTrainer).parameters else "processing_class"

    def metric(numbers):
        chosen = {"args": arguments, "train_dataset": rows, "eval_dataset": rows.select(numbers), named: tokenizer}
        trainer = trl.RewardTrainer(model=model(), **chosen)
        trainer.evaluate()
        return next(entry[METRIC] for entry in trainer.state.log_history if METRIC in entry)

    found, alone = metric(range(2)), [metric([number]) for number in range(2)]
expected = sum(alone) / 2
print(f"{METRIC} of a batch of two rows with margins: found {found:.4f}, expected {expected:.4f}")
sys.exit(abs(found - expected) > 1e-3)
