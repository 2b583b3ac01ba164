"""The logits of 16 tokens that an activated LoRA generates without a cache, beside those of one pass over the text.

The adapter of rank 32 was trained for 10 steps at a rate of 1e-3. The 4 tokens of its invocation end a prompt of 132.
"""

import peft
import torch
from released import changed_tokens, off, report, smollm, tokens, train

PROMPT, INVOCATION, NEW = 128, [17, 18, 19, 20], 16
row = torch.cat([tokens(PROMPT).clamp(min=100), torch.tensor([INVOCATION])], 1)
chosen = {"r": 32, "lora_alpha": 32, "target_modules": ["q_proj", "k_proj", "v_proj"]}
config = peft.LoraConfig(task_type="CAUSAL_LM", alora_invocation_tokens=INVOCATION, **chosen)
adapted = peft.get_peft_model(smollm(eos_token_id=None), config)
answer = tokens(PROMPT + NEW)[:, PROMPT:].clamp(min=100)
train(adapted, torch.cat([row, answer], 1), steps=10, rate=1e-3)


def errors(use_cache):
    given = {"input_ids": row, "attention_mask": torch.ones_like(row), "max_new_tokens": NEW, "pad_token_id": 0}
    made = adapted.generate(
        **given, do_sample=False, use_cache=use_cache, return_dict_in_generate=True, output_logits=True
    )
    found = torch.stack(made.logits, 1)
    with torch.no_grad():
        expected = adapted(input_ids=made.sequences, use_cache=False).logits[:, row.shape[1] - 1 : -1]
        with adapted.disable_adapter():
            base = adapted(input_ids=made.sequences, use_cache=False).logits[:, row.shape[1] - 1 : -1]
    effect = float((found - expected).norm() / (expected - base).norm())
    return {"logits_off": off(found, expected), "of_effect": effect, "changed_tokens": changed_tokens(found, expected)}


for use_cache in (True, False):
    report(f"{NEW} tokens, use_cache={use_cache}", **errors(use_cache))
