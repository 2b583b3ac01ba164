"""How far training moves AdaLoRA's number of ranks, by which it divides, on SmolLM-135M of 6 layers in bfloat16."""

import peft
import torch
from released import report, smollm, tokens, train

LENGTH, STEPS, RATE, LAYERS = 256, 20, 1e-3, 6
config = peft.AdaLoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", total_step=1000)
model = peft.get_peft_model(smollm(num_hidden_layers=LAYERS).bfloat16(), config)
counters = [each for name, each in model.named_parameters() if "ranknum" in name]
start = torch.stack([each.detach().float().clone() for each in counters])
train(model, tokens(LENGTH), STEPS, RATE)
moved = (torch.stack([each.detach().float() for each in counters]) / start - 1).abs()
report(
    f"{LAYERS} layers, {STEPS} steps of {LENGTH} tokens at a rate of {RATE}",
    ranks=float(start.mean()),
    mean_change=float(moved.mean()),
    largest_change=float(moved.max()),
)
