"""GPT-2 with OLoRA on its square layers, beside the base, before any training."""

import peft
import torch
import transformers
from released import changed_tokens, off, report, tokens

LENGTH, RANK = 512, 16
torch.manual_seed(0)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()  # by default, the sizes of openai-community/gpt2
row = tokens(LENGTH, model.config.vocab_size)
with torch.no_grad():
    expected = model(row, use_cache=False).logits
    config = peft.LoraConfig(r=RANK, target_modules=r".*\.attn\.c_proj", fan_in_fan_out=True, init_lora_weights="olora")
    found = peft.get_peft_model(model, config).eval()(row, use_cache=False).logits
report(
    f"{LENGTH} tokens, rank {RANK}",
    logits_off=off(found, expected),
    changed_tokens=changed_tokens(found, expected),
)
