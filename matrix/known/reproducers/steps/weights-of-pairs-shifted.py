"""DPOTrainer's use_weighting leaves the last token out of the weight of a pair.

Shows with trl 0.15 to 0.26, not with 0.12 or 1.13. No thread found on 2026-11-26; huggingface/trl#2141 adds weights.
Exit code: 0 the weight of all tokens, 1 without the last, 77 this trl has no use_weighting, anything else: something
else happened.
"""

import inspect
import json
import math
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
PAIR = {"prompt": [3], "chosen": range(30, 42), "rejected": range(42, 54)}

if "use_weighting" not in inspect.signature(getattr(trl, "DPOConfig", object)).parameters:
    sys.exit(77)


def tiny_model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=2, initializer_range=0.15)
    return transformers.LlamaForCausalLM(config).eval()


def mean_of(text, last):  # of log p less the log of the sum of p^2; ``last`` counts the last token's p
    ids = torch.tensor([[*PAIR["prompt"], *PAIR[text], 2]])
    with torch.no_grad():
        every = tiny_model()(ids).logits[0, :-1].log_softmax(-1)
    chosen = every.gather(-1, ids[0, 1:, None])[:, 0]
    return float(chosen[: None if last else -1].sum() - (2 * every).logsumexp(-1).sum()) / len(chosen)


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    special = {"pad_token": "w0", "eos_token": "w2"}
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **special)
    row = {name: "".join(f" w{n}" for n in ids) for name, ids in PAIR.items()}
    settings = {"use_cpu": True, "report_to": "none", "remove_unused_columns": False, "bf16": False}
    arguments = trl.DPOConfig(folder, **settings, use_weighting=True)
    more = dict.fromkeys(("train_dataset", "eval_dataset"), Dataset.from_list([row]))
    trainer = trl.DPOTrainer(tiny_model(), tiny_model(), args=arguments, processing_class=words, **more)
    found = trainer.evaluate()["eval_loss"] / math.log(2)  # the loss of a model against itself
whole, cut = (math.exp(mean_of("chosen", last) + mean_of("rejected", last)) for last in (True, False))
print(f"weight of a pair: found {found:.5f}, expected {whole:.5f}")
sys.exit(0 if abs(found / whole - 1) < 1e-3 else 1 if abs(found / cut - 1) < 1e-3 else 3)
