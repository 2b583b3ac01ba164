"""Trainer passes optim_args to bitsandbytes' RMSprop as strings, which raises TypeError.

Shows with transformers 4.39 to 5.23. No thread found on 2026-11-23; related: huggingface/transformers#29082.
Exit code: 0 the optimiser has the value, 1 TypeError because of a string, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import Trainer, TrainingArguments

expected = 0.8
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, optim="rmsprop_bnb_32bit", optim_args="alpha=0.8", use_cpu=True)
    trainer = Trainer(model=torch.nn.Linear(2, 2), args=arguments)
    try:
        found = trainer.create_optimizer().defaults["betas"][0]  # bitsandbytes keeps alpha there
    except TypeError as error:
        found = error
print(f"alpha of the optimiser: found {found}, expected {expected}")
is_string = isinstance(found, TypeError) and "'float' and 'str'" in str(found)
sys.exit(0 if found == expected else 1 if is_string else 3)
