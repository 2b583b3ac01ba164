"""DPOTrainer's ld_alpha counts a completion's tokens from the first of the prompt, and so leaves the last ones out.

Shows with trl 0.18 to 0.26; not with 0.29. No thread found on 2026-11-26.
Exit code: 0 right, 1 nothing is left of a completion shorter than its prompt, 77 this trl has no ld_alpha,
anything else: something else happened.
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

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"type": "WordLevel", "unk_token": "w0", "vocab": {f"w{n}": n for n in range(64)}}
ROWS = Dataset.from_list([{"prompt": "w3 w4 w10 w11 w12 w13", "chosen": " w5 w6 w7", "rejected": " w8 w9"}])
SPECIAL = {"pad_token": "w0", "eos_token": "w2", "bos_token": "w1"}
if not hasattr(getattr(trl, "DPOConfig", None), "ld_alpha"):
    print(f"trl {trl.__version__} has no ld_alpha of DPOTrainer", file=sys.stderr)
    sys.exit(77)


def model(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=2, initializer_range=0.15))


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))
    words = PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIAL)

    def evaluated(**chosen):
        arguments = trl.DPOConfig(folder, **chosen, beta=1.0, use_cpu=True, bf16=False, report_to="none")
        given = {"train_dataset": ROWS, "eval_dataset": ROWS, "processing_class": words}
        trainer = trl.DPOTrainer(model=model(0), ref_model=model(1), args=arguments, **given)
        trainer.evaluate()
        return trainer.state.log_history[-1]  # evaluate() of trl 0.29 returns less than it logs

    plain, weighted = (evaluated(ld_alpha=alpha)["eval_logps/chosen"] for alpha in (None, 1.0))

print(f"logps/chosen with ld_alpha=1.0, which weighs every token alike: found {weighted:.4f}, expected {plain:.4f}")
sys.exit(0 if abs(weighted - plain) < 1e-3 else 1 if weighted == 0 else 3)
