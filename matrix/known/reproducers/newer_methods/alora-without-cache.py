"""Without a cache, generation by an activated LoRA forgets the first tokens of the invocation one by one.

The adapter computes from the invocation tokens on (arXiv:2504.12397). PEFT measures their distance from the end of the
prompt and keeps it, while each pass has a longer text. No thread found on 2026-11-24; related: huggingface/peft#2609.
Exit code: 0 right, 1 wrong logits, 77 this peft has no activated LoRA, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
if "alora_invocation_tokens" not in LoraConfig.__dataclass_fields__:
    print("this peft has no activated LoRA", file=sys.stderr)
    sys.exit(77)
torch.manual_seed(0)
base = LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.2, eos_token_id=None))
chosen = {"target_modules": ["q_proj", "v_proj"], "init_lora_weights": False, "alora_invocation_tokens": [5, 6, 7]}
model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=16, **chosen)).eval()
prompt = torch.tensor([[11, 12, 13, 5, 6, 7, 14]])


@torch.no_grad()
def off(use_cache):
    """The difference of the generated tokens' logits from those of one pass over the whole text, relative."""
    asked = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "use_cache": use_cache}
    mask = torch.ones_like(prompt)
    made = model.generate(
        input_ids=prompt, attention_mask=mask, return_dict_in_generate=True, output_logits=True, **asked
    )
    expected = model(input_ids=made.sequences).logits[:, prompt.shape[1] - 1 : -1]
    return float((torch.stack(made.logits, 1) - expected).norm() / expected.norm())


cached, found = off(use_cache=True), off(use_cache=False)
print(f"logits of generated tokens off without a cache: found {found:.2g}, expected {cached:.2g} as with one")
sys.exit(3 if cached > 1e-4 else found > 1e-4)
