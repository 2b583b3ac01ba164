"""accelerate does not adjust a schedule to gradient accumulation: it advances once per step of the optimiser.

Shows with accelerate 1.2 to 1.15. Thread: huggingface/accelerate#4262 (open). Documented:
https://huggingface.co/docs/accelerate/package_reference/torch_wrappers ("scheduler lengths should not be changed").
Exit code: 0 advances for every batch, 1 once per step of the optimiser, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from accelerate import Accelerator

BATCHES, ACCUMULATION = 8, 2

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
model = torch.nn.Linear(1, 1)
optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / BATCHES)  # down to 0 in an epoch
loader = torch.utils.data.DataLoader(torch.ones(BATCHES, 1), batch_size=1)
model, optimiser, loader, schedule = accelerator.prepare(model, optimiser, loader, schedule)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).mean())
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
found = schedule.get_last_lr()[0]
print(f"learning rate after an epoch of {BATCHES} batches: found {found:.3f}, expected 0.000")
sys.exit({0.0: 0, 1 - 1 / ACCUMULATION: 1}.get(found, 3))
