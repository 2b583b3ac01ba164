"""Logits of a trained VeRA adapter, loaded where its seed gives other projections, beside those before saving.

The base is SmolLM-135M of 6 layers. Another seed in the configuration stands for another random generator.
``effect_off`` is the error over the distance by which the adapter moves the logits.
"""

import tempfile

import peft
import torch
from released import off, report, smollm, tokens, train

LENGTH, STEPS, RATE, LAYERS = 256, 10, 1e-2, 6
row = tokens(LENGTH)


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=row, use_cache=False).logits


config = peft.VeraConfig(target_modules=["q_proj", "v_proj"], projection_prng_key=1)
model = train(peft.get_peft_model(smollm(num_hidden_layers=LAYERS), config), row, STEPS, RATE)
plain, expected = logits(smollm(num_hidden_layers=LAYERS)), logits(model)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    loaded = logits(peft.PeftModel.from_pretrained(smollm(num_hidden_layers=LAYERS), folder))
    peft.VeraConfig(target_modules=["q_proj", "v_proj"], projection_prng_key=2).save_pretrained(folder)
    found = logits(peft.PeftModel.from_pretrained(smollm(num_hidden_layers=LAYERS), folder))
report(
    f"{LAYERS} layers, {LENGTH} tokens, {STEPS} steps at a rate of {RATE}",
    logits_off=off(found, expected),
    effect_off=float((found - expected).norm() / (expected - plain).norm()),
    effect_off_with_the_same_seed=float((loaded - expected).norm() / (expected - plain).norm()),
)
