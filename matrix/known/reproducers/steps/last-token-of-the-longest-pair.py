"""DPOTrainer drops the last token of a batch's longest sequence, if prompts have different lengths.

Shows with trl 0.12, not with 0.10 or 0.15. No thread found on 2026-11-26.
Exit code: 0 right, 1 the end token is missing, 77 this trl has no DPOConfig, anything else: something else happened.
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
import transformers
import trl
from datasets import Dataset

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(64)}}
PAIRS = [([1], [5, 6, 7, 3, 4], [8]), ([1, 3, 4, 9], [5], [8])]  # prompt, chosen, rejected

if not hasattr(trl, "DPOConfig"):
    sys.exit(77)


def tiny_model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=2, initializer_range=0.15)
    return transformers.LlamaForCausalLM(config).eval()


def chances(prompt, chosen, _):
    ids = torch.tensor([[*prompt, *chosen, 2]])
    with torch.no_grad():
        return tiny_model()(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[0, len(prompt) - 1 :, 0]


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    special = {"pad_token": "w0", "eos_token": "w2", "bos_token": "w1"}
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **special)
    names = ("prompt", "chosen", "rejected")
    rows = [{name: "".join(f" w{n}" for n in ids) for name, ids in zip(names, pair, strict=True)} for pair in PAIRS]
    settings = {"use_cpu": True, "report_to": "none", "remove_unused_columns": False, "bf16": False}
    arguments = trl.DPOConfig(folder, **settings)
    more = dict.fromkeys(("train_dataset", "eval_dataset"), Dataset.from_list(rows))
    known = inspect.signature(trl.DPOTrainer.__init__).parameters
    more["processing_class" if "processing_class" in known else "tokenizer"] = words
    trainer = trl.DPOTrainer(model=tiny_model(), ref_model=tiny_model(), args=arguments, **more)
    found = trainer.evaluate()["eval_logps/chosen"]
first, second = (chances(*pair) for pair in PAIRS)
whole, cut = (float(each.sum() + second.sum()) / 2 for each in (first, first[:-1]))
print(f"mean log-probability of the chosen completions: found {found:.4f}, expected {whole:.4f}")
sys.exit(0 if abs(found - whole) < 1e-3 else 1 if abs(found - cut) < 1e-3 else 3)
