"""With prompt tuning, a text that is padded on the left is continued differently than alone.

Shows with peft 0.21.2. Reported in huggingface/peft#1093.
Exit code: 0 the same logits, 1 others, 77 cannot run, anything else: something else happened.
"""

import os
import sys
import traceback
import warnings

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error
warnings.simplefilter("ignore")

import peft
import torch
import transformers

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
config = transformers.LlamaConfig(vocab_size=64, **sizes, pad_token_id=0, eos_token_id=None, bos_token_id=None)
model = transformers.LlamaForCausalLM(config)
with torch.no_grad():  # weights of a trained model's size, so that positions count
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.mul_(8)
model = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)).eval()
text = torch.randint(1, 64, (1, 8))
padding = torch.zeros(1, 12, dtype=torch.long)


def first_logits(ids, mask):
    named = {"max_new_tokens": 1, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    return model.generate(input_ids=ids, attention_mask=mask, **named).logits[0]


alone = first_logits(text, torch.ones_like(text))
padded = first_logits(torch.cat([padding, text], 1), torch.cat([padding, torch.ones_like(text)], 1))
off = float((padded - alone).norm() / alone.norm())
print(f"logits of the padded text off those of the text alone: found {off:.2g}, expected < 1e-4")
sys.exit(1 if off > 1e-2 else 0 if off < 1e-4 else 3)
