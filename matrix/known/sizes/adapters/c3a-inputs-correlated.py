"""The gradient of C3A adapters with blocks of 64 on all linear layers, beside that of their forward by autograd."""

from types import SimpleNamespace

import peft
import torch
from peft.tuners.c3a import layer
from released import off, report, smollm, tokens

LENGTH = 256
row = tokens(LENGTH)
adapted = peft.get_peft_model(smollm(), peft.C3AConfig(block_size=64, target_modules="all-linear"))
own = layer.BlockCircularConvolution
context = SimpleNamespace(save_for_backward=lambda *_: None)


def gradients(convolution):
    layer.BlockCircularConvolution = convolution
    adapted.zero_grad()
    adapted(input_ids=row, labels=row, use_cache=False).loss.backward()
    return {name: each.grad.clone() for name, each in adapted.named_parameters() if each.requires_grad}


found = gradients(own)
expected = gradients(SimpleNamespace(apply=lambda inputs, kernel: own.forward(context, inputs, kernel)))


def error(part=""):
    found_part, expected_part = (
        torch.cat([each.flatten() for name, each in every.items() if part in name]) for every in (found, expected)
    )
    return off(found_part, expected_part)


report(f"{LENGTH} tokens", gradient_off=error(), first_layer_off=error("layers.0."), last_layer_off=error("layers.29."))
