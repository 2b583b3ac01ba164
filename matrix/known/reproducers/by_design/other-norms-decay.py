"""The Trainer's weight decay acts on norms that are not torch.nn.LayerNorm, such as Qwen 2's.

Shows with transformers 4.41 to 4.47, not with 5.23. Its documentation says so.
Exit code: 0 norms do not decay, 1 they do, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
with tempfile.TemporaryDirectory() as folder:
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=4))
    arguments = TrainingArguments(folder, weight_decay=0.1, use_cpu=True, report_to="none")
    groups = Trainer(model=model, args=arguments).create_optimizer().param_groups
decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
found = [name for name, parameter in model.named_parameters() if "norm" in name and decays[id(parameter)]]
print(f"norms of Qwen 2 with weight decay: found {found}, expected []")
sys.exit(1 if len(found) == 3 else 0 if not found else 3)
