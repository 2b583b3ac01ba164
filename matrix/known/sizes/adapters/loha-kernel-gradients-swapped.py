"""The gradients of LoHa of rank 8 on the kernels of ResNet-50, beside those of its update: 2 images of 224 x 224.

At the start and after 10 steps of AdamW with a rate of 1e-3.
"""

import peft
import torch
from released import off, report
from transformers import ResNetConfig, ResNetForImageClassification

torch.manual_seed(0)
model = ResNetForImageClassification(ResNetConfig(num_labels=1000))  # the default is ResNet-50
config = peft.LoHaConfig(r=8, alpha=8, target_modules=r".*layer\.1\.convolution", use_effective_conv2d=True)
adapted = peft.get_peft_model(model, config).train()
layers = [each for each in adapted.modules() if getattr(each, "hada_t1", None)]
for each in layers:
    each.base_layer.weight.requires_grad = True  # its gradient is that of the update
batch = {"pixel_values": torch.randn(2, 3, 224, 224), "labels": torch.tensor([1, 2])}
optimiser = torch.optim.AdamW([each for name, each in adapted.named_parameters() if "hada" in name], lr=1e-3)
PARTS = ("t1", "w1_a", "w1_b", "t2", "w2_a", "w2_b")


def factors(layer):
    return {part: getattr(layer, f"hada_{part}")["default"] for part in PARTS}


def expected(layer):
    copies = {part: each.detach().clone().requires_grad_() for part, each in factors(layer).items()}
    one, two = (torch.einsum("ijkl,jr,ip->prkl", copies[f"t{n}"], copies[f"w{n}_b"], copies[f"w{n}_a"]) for n in (1, 2))
    (one * two * layer.scaling["default"] * layer.base_layer.weight.grad).sum().backward()
    return [each.grad.flatten() for each in copies.values()]


def pass_through():
    adapted.zero_grad()
    adapted(**batch).loss.backward()
    right = torch.cat([each for layer in layers for each in expected(layer)])
    found = torch.cat([each.grad.flatten() for layer in layers for each in factors(layer).values()])
    return off(found, right)


at_start = pass_through()
for _ in range(10):
    optimiser.step()
    later = pass_through()
report(f"{len(layers)} kernels", gradient_off_at_start=at_start, gradient_off_after_10_steps=later)
