"""The logits of two active C3A adapters with their start values, beside those of their summed updates."""

import peft
import torch
from released import changed_tokens, off, report, smollm, tokens

LENGTH, BLOCK = 512, 64
row = tokens(LENGTH)
base = smollm()
with torch.no_grad():
    plain = base(input_ids=row, use_cache=False).logits
config = peft.C3AConfig(target_modules=["q_proj", "o_proj"], block_size=BLOCK)
model = peft.get_peft_model(base, config, "first")
model.add_adapter("second", config)
names = ["first", "second"]
model.base_model.set_adapter(names)
model.eval()
with torch.no_grad():
    found = model(input_ids=row, use_cache=False).logits
    expected = model.merge_and_unload(adapter_names=names)(input_ids=row, use_cache=False).logits
report(
    f"{LENGTH} tokens, blocks of {BLOCK}",
    logits_off=off(found, expected),
    effect_off=float((found - expected).norm() / (expected - plain).norm()),
    changed_tokens=changed_tokens(found, expected),
)
