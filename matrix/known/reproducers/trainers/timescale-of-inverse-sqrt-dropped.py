"""get_scheduler drops the timescale of scheduler_specific_kwargs if the schedule is inverse_sqrt.

Shows with transformers 4.39 to 5.3, not 5.17. Upstream: huggingface/transformers#44909.
Exit code: 0 right, 1 the timescale by default, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import get_inverse_sqrt_schedule, get_scheduler

STEPS, SCALE = 9, 9


def rate(make, **arguments):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = make(optimizer, **arguments)
    for _ in range(STEPS):
        optimizer.step()
        schedule.step()
    return round(optimizer.param_groups[0]["lr"], 6)


def by_name(optimizer, **more):
    return get_scheduler("inverse_sqrt", optimizer, 0, 20, scheduler_specific_kwargs=more)


found = rate(by_name, timescale=SCALE)
expected = rate(get_inverse_sqrt_schedule, num_warmup_steps=0, timescale=SCALE)
default = rate(get_inverse_sqrt_schedule, num_warmup_steps=0)
print(f"rate after {STEPS} steps with timescale={SCALE}: found {found}, expected {expected}")
sys.exit(3 if expected != round(0.5**0.5, 6) else {expected: 0, default: 1}.get(found, 3))
