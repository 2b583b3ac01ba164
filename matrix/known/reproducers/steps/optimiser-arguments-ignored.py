"""The Trainer ignores optim_args of the optimisers sgd, adagrad and rmsprop.

Shows at least with transformers 4.41 to 4.57, not with 5.23. Thread: huggingface/transformers#44075 (fixed by #44203).
Exit code: 0 the momentum is set, 1 it is 0, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import Trainer, TrainingArguments

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, optim="sgd", optim_args="momentum=0.9", use_cpu=True, report_to="none")
    optimiser = Trainer(model=torch.nn.Linear(2, 2), args=arguments).create_optimizer()
found = float(optimiser.param_groups[0]["momentum"])
print(f"momentum of sgd with momentum=0.9 in optim_args: found {found}, expected 0.9")
sys.exit({0.9: 0, 0.0: 1}.get(found, 3))
