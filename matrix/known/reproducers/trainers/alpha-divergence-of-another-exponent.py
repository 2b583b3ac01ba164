"""DPOTrainer's alpha_divergence takes u^(alpha - 1) where the documentation and the paper have u^-alpha.

Shows with trl 0.29 to 1.16; not with 0.26. No thread found on 2026-11-23; related: huggingface/trl#1339.
Exit code: 0 u^-alpha, 1 u^(alpha - 1), 77 this trl has no f_divergence_type, anything else: something else happened.
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
SPECIAL = {"pad_token": "w0", "eos_token": "w2"}
ALPHA = 0.2
if not hasattr(getattr(trl, "DPOConfig", None), "f_divergence_type"):
    print(f"trl {trl.__version__} has no f_divergence_type of DPOTrainer", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)
model, reference = (LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.15)) for _ in range(2))
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}))

    def evaluated(divergence):
        chosen = {"f_divergence_type": divergence, "f_alpha_divergence_coef": ALPHA, "beta": 1.0}
        arguments = trl.DPOConfig(folder, **chosen, use_cpu=True, bf16=False, report_to="none")
        words = PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIAL)
        given = {"train_dataset": ROWS, "eval_dataset": ROWS}
        known = inspect.signature(trl.DPOTrainer.__init__).parameters
        given["processing_class" if "processing_class" in known else "tokenizer"] = words
        trainer = trl.DPOTrainer(model=model, ref_model=reference, args=arguments, **given)
        trainer.evaluate()
        return trainer.state.log_history[-1]  # evaluate() of trl 0.29 returns less than it logs

    plain, found = evaluated("reverse_kl"), evaluated("alpha_divergence")["eval_loss"]


def loss(exponent):  # equation 7 of arXiv:2309.16240; with reverse_kl and beta 1, the rewards are the log ratios
    ratios = (torch.tensor(plain[f"eval_rewards/{side}"]).exp() for side in ("chosen", "rejected"))
    one, other = ((u**exponent - 1) / exponent for u in ratios)
    return float(-torch.nn.functional.logsigmoid(one - other))


expected, wrong = loss(-ALPHA), loss(ALPHA - 1)
print(f"DPO loss of the alpha divergence with alpha {ALPHA}: found {found:.4f}, expected {expected:.4f}")
sys.exit(0 if abs(found - expected) < 1e-3 else 1 if abs(found - wrong) < 1e-3 else 3)
