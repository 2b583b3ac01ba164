"""Logits of a merged LoRA adapter after one inference with the 4-bit base, beside those of the same merge before it.

The base is SmolLM-135M in bfloat16 and NF4, on a CPU with AVX512-BF16. The adapter has its start values, so that the
merge changes nothing but the layout of the weights.
"""

import tempfile

import bitsandbytes  # noqa: F401 - for its version
import peft
import torch
import transformers
from released import changed_tokens, off, report, smollm, tokens

LENGTH = 512
row = tokens(LENGTH)


def merged(*, after_inference):
    quantised = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=quantised, dtype=torch.bfloat16, device_map={"": "cpu"}
    )
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear")).eval()
    with torch.no_grad():
        if after_inference:
            model(input_ids=row, use_cache=False)
        return model.merge_and_unload()(input_ids=row, use_cache=False).logits.float()


with tempfile.TemporaryDirectory() as folder:
    smollm().bfloat16().save_pretrained(folder)
    expected, found = merged(after_inference=False), merged(after_inference=True)
report(f"{LENGTH} tokens", logits_off=off(found, expected), changed_tokens=changed_tokens(found, expected))
