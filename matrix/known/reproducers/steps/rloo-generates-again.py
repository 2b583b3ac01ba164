"""RLOOTrainer of trl 0.26 counts each batch twice, so that it generates anew for batches that are to be reused.

With gradient accumulation, it also trains on the first part of each generation only. Shows with trl 0.26.1.
Upstream: huggingface/trl#4516 brought it, huggingface/trl#4706 fixed it in trl 0.27.
Exit code: 0 right, 1 generates for each batch, 77 an older RLOOTrainer, anything else: something else happened.
"""

import json
import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import trl
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

if "num_iterations" not in dir(getattr(trl, "RLOOConfig", None)):
    print(f"RLOOTrainer of trl {trl.__version__} has no num_iterations", file=sys.stderr)
    sys.exit(77)

SIZES = {"vocab_size": 8, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(8)}}
SPECIAL = {"pad_token": "w0", "eos_token": "w2", "model_input_names": ["input_ids", "attention_mask"]}
PROMPTS = Dataset.from_list([{"prompt": f"w{n} w{n + 1}"} for n in range(3, 7)])
SETTINGS = {"num_generations": 2, "per_device_train_batch_size": 2, "max_completion_length": 4, "beta": 0.0}
CPU = {"use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no"}


def generations(folder, tokenizer, **chosen):
    """How often a short training generates completions."""
    calls = []

    def reward(completions, **_):
        calls.append(len(completions))
        return [float(len(each.split())) for each in completions]

    model = LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=2))
    given = {"processing_class": tokenizer, "train_dataset": PROMPTS}
    arguments = trl.RLOOConfig(folder, **SETTINGS, **CPU, **chosen)
    trl.RLOOTrainer(model=model, reward_funcs=reward, args=arguments, **given).train()
    return len(calls)


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), padding_side="left", **SPECIAL)
    reused = generations(folder, tokenizer, max_steps=4, num_iterations=2)
    accumulated = generations(folder, tokenizer, max_steps=2, gradient_accumulation_steps=2)
print(f"generations in 4 steps with num_iterations=2: found {reused}, expected 2")
print(f"in 2 steps with gradient_accumulation_steps=2: found {accumulated}, expected 2")
sys.exit({(2, 2): 0, (4, 4): 1}.get((reused, accumulated), 3))
