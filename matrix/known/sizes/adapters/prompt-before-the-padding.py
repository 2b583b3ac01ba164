"""The logits that continue a prompt-tuned text padded on the left, beside those of the text alone."""

import peft
import torch
from released import changed_tokens, off, report, smollm, tokens

LENGTH, VIRTUAL, PADDING = 64, 20, 448
text = tokens(LENGTH)
config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=VIRTUAL)
model = peft.get_peft_model(smollm(pad_token_id=0, eos_token_id=None, bos_token_id=None), config).eval()


def continued(padding):
    """The logits of the first token behind a text with some padding before it."""
    ids = torch.nn.functional.pad(text, (padding, 0))
    mask = torch.nn.functional.pad(torch.ones_like(text), (padding, 0))
    named = {"max_new_tokens": 1, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    return model.generate(input_ids=ids, attention_mask=mask, **named).logits[0]


expected, found = continued(0), continued(PADDING)
report(
    f"{VIRTUAL} virtual tokens, {LENGTH} tokens behind {PADDING} of padding",
    logits_off=off(found, expected),
    changed_tokens=changed_tokens(found, expected),
)
