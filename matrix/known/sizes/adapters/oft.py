"""Logits of trained OFT adapters off the right ones: SmolLM-135M of 6 layers, on one row of random tokens.

merged: two active adapters, merged, beside their forward pass. series: an adapter that the series trained, with
use_cayley_neumann=False. terms: num_cayley_neumann_terms=3 beside the series of three terms. ``effect_off`` is the
error over the distance by which the adapters move the logits.
"""

import peft
import torch
from peft.tuners.oft.layer import OFTRotationModule
from released import changed_tokens, off, report, smollm, tokens, train

LENGTH, STEPS, RATE, LAYERS = 256, 10, 1e-3, 6
NAMES = ["first", "second"]
row = tokens(LENGTH)


def adapted(**settings):
    """The base with two OFT adapters on all linear layers, by PEFT's defaults and some settings."""
    config = peft.OFTConfig(target_modules="all-linear", **settings)
    model = peft.get_peft_model(smollm(num_hidden_layers=LAYERS), config, "first")
    model.add_adapter("second", config)
    return model.eval()


def logits(model):
    with torch.no_grad():
        return model(input_ids=row, use_cache=False).logits


def three_terms(module, values, size, *_):
    """I + 2 Q + Q²: PEFT's series of other lengths halves the last term, too."""
    skew = module._pytorch_skew_symmetric(values, size)
    return torch.eye(size) + 2 * skew + skew @ skew


def compare(name, found, expected):
    report(
        f"{name}, {LAYERS} layers, {LENGTH} tokens, {STEPS} steps at a rate of {RATE}",
        logits_off=off(found, expected),
        effect_off=float((found - expected).norm() / (expected - plain).norm()),
        changed_tokens=changed_tokens(found, expected),
    )


plain = logits(smollm(num_hidden_layers=LAYERS))
model = adapted()
for number, name in enumerate(NAMES):
    model.set_adapter(name)
    train(model, row.roll(number), STEPS, RATE)
trained = {name: tensor.clone() for name, tensor in model.state_dict().items()}

model.set_adapter("first")
first = logits(model)
exact, three = adapted(use_cayley_neumann=False), adapted(num_cayley_neumann_terms=3)
for each in (exact, three):
    each.load_state_dict(trained)
compare("series", logits(exact), first)
found, OFTRotationModule._cayley_batch, own = logits(three), three_terms, OFTRotationModule._cayley_batch
compare("terms", found, logits(three))
OFTRotationModule._cayley_batch = own
model.base_model.set_adapter(NAMES)
both = logits(model)
compare("merged", logits(model.merge_and_unload(adapter_names=NAMES)), both)
