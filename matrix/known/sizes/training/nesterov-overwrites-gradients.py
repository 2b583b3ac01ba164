"""The gradient norm that is logged after a step of SGD with nesterov and foreach, beside that before it: 8 steps.

SmolLM-135M with 12 of its layers, momentum 0.9, rate 0.01, another row of 256 tokens for each step.
"""

import torch
from released import report, smollm, tokens

STEPS, LENGTH = 8, 256
rows = tokens(STEPS * LENGTH).view(STEPS, 1, LENGTH)


def ratios(foreach):
    model = smollm(num_hidden_layers=12).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, foreach=foreach)
    for row in rows:
        model(input_ids=row, labels=row, use_cache=False).loss.backward()
        before = torch.stack([each.grad.norm() for each in model.parameters()]).norm()
        optimiser.step()
        yield float(torch.stack([each.grad.norm() for each in model.parameters()]).norm() / before)
        optimiser.zero_grad()


for foreach in (False, True):
    found = list(ratios(foreach))
    report(f"{STEPS} steps, foreach={foreach}", norm_ratio_of_first_step=found[0], norm_ratio_of_last_step=found[-1])
