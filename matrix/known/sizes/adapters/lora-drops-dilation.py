"""LoRA of rank 8 on dilated convolutions of DeepLab v3 with MobileViT, and on one of their sizes with padding="same".

A convolution that pads by a number has another number of outputs without its dilation, so that torch raises.
"""

import peft
import torch
from released import off, report
from transformers import MobileViTConfig, MobileViTForSemanticSegmentation

torch.manual_seed(0)
# huggingface.co/apple/deeplabv3-mobilevit-small, config.json
model = MobileViTForSemanticSegmentation(MobileViTConfig(num_labels=21, output_stride=16))
dilated = [name for name, each in model.named_modules() if isinstance(each, torch.nn.Conv2d) and max(each.dilation) > 1]
adapted = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=dilated)).eval()
try:
    with torch.no_grad():
        adapted(torch.randn(1, 3, 512, 512))
    raised = 0
except RuntimeError:
    raised = 1
report(f"{len(dilated)} dilated convolutions of DeepLab v3", raised=raised)

maps = torch.randn(2, 640, 32, 32)
for dilation in (1, 6):
    layer = torch.nn.Conv2d(640, 256, 3, dilation=dilation, padding="same")
    with torch.no_grad():
        base = layer(maps)
        config = peft.LoraConfig(r=8, target_modules=["0"], init_lora_weights=False)
        one = peft.get_peft_model(torch.nn.Sequential(layer), config).eval()
        found = one(maps)
        one.merge_adapter()
        expected = one(maps)
    effect = off(found - base, expected - base)
    report(f"dilation {dilation}", outputs_off_merged=off(found, expected), update_off_merged=effect)
