"""The size of a RandLoRA file of rank 32 on queries and values of SmolLM-135M, beside that with its matrices once."""

import pathlib
import tempfile

import peft
from released import report, smollm
from safetensors.torch import load_file

adapted = peft.get_peft_model(smollm(), peft.RandLoraConfig(r=32, target_modules=["q_proj", "v_proj"]))
with tempfile.TemporaryDirectory() as folder:
    adapted.save_pretrained(folder)
    file = pathlib.Path(folder, "adapter_model.safetensors")
    size, tensors = file.stat().st_size, load_file(file)
bases = {name: each for name, each in tensors.items() if "randlora_A" in name or "randlora_B" in name}
once = {name.rsplit("randlora_", 1)[-1]: each for name, each in bases.items()}
right = size - sum(each.nbytes for each in bases.values()) + sum(each.nbytes for each in once.values())
report(f"{len(bases)} matrices instead of {len(once)}", file_MB=size / 1e6, MB_with_each_once=right / 1e6)
