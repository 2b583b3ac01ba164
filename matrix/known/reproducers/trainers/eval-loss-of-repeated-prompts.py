"""GRPOTrainer's eval_loss counts the last batch as if each prompt had one completion, so it counts too little.

Shows with trl 0.18 to 1.16. No thread found on 2026-11-24; related: huggingface/trl#3539.
Exit code: 0 all batches count as much, 1 the last one counts half, 77 this trl has no loss_type of it, anything
else: something else happened.
"""

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

if "loss_type" not in dir(getattr(trl, "GRPOConfig", None)):
    print(f"trl {trl.__version__} has no loss_type of GRPOTrainer", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 8, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(8)}}
SPECIAL = {"pad_token": "w0", "eos_token": "w2", "model_input_names": ["input_ids", "attention_mask"]}
PROMPTS = Dataset.from_list([{"prompt": f"w{n} w{n + 1}"} for n in range(3, 7)])
SETTINGS = {"num_generations": 4, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 8}  # 2 full batches
SETTINGS |= {"max_completion_length": 8, "loss_type": "dr_grpo", "beta": 0.0}  # divides by constants
CPU = {"max_steps": 1, "use_cpu": True, "bf16": False, "report_to": "none"}
losses = []


class RecordedBatches(trl.GRPOTrainer):
    def compute_loss(self, *arguments, **named):
        return losses.append(super().compute_loss(*arguments, **named)) or losses[-1]


def length(completions, **_):
    return [float(len(completion.split())) for completion in completions]


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    given = {"processing_class": PreTrainedTokenizerFast(tokenizer_file=str(file), padding_side="left", **SPECIAL)}
    given |= {"train_dataset": PROMPTS, "eval_dataset": PROMPTS, "args": trl.GRPOConfig(folder, **SETTINGS, **CPU)}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=2))
    trainer = RecordedBatches(model=model, reward_funcs=length, **given)
    trainer.train()  # trl 0.23 and 0.26 evaluate only after that
    losses.clear()
    found = trainer.evaluate()["eval_loss"]
first, last = map(float, losses)
expected, wrong = (first + last) / 2, (2 * first + last) / 3  # 4 prompts modulo 8 rows are half a batch
print(f"eval_loss of batches with {first:.5f} and {last:.5f}: found {found:.5f}, expected {expected:.5f}")
sys.exit(0 if abs(found - expected) < 1e-5 else 1 if abs(found - wrong) < 1e-5 else 3)
