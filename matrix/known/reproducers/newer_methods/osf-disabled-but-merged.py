"""disable_adapter leaves a merged OSF adapter in the outputs, although its weights do not come out again.

Shows with peft 0.18 to 0.21. No thread found on 2026-11-26.
Exit code: 0 gives the base or refuses, 1 gives the merged outputs, 77 this peft has no OSF, anything else: something
else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

if not hasattr(peft, "OSFConfig"):
    print(f"peft {peft.__version__} has no OSF", file=sys.stderr)
    sys.exit(77)
torch.manual_seed(0)
base, inputs = torch.nn.Sequential(torch.nn.Linear(6, 4)), torch.ones(1, 6)
plain = base(inputs).detach()
model = peft.get_peft_model(base, peft.OSFConfig(target_modules=["0"], effective_rank=2))
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "S_low" in name:
            parameter.add_(1)
model.merge_adapter()
merged = model(inputs)
try:
    with model.disable_adapter():
        outputs = model(inputs)
except NotImplementedError as error:
    print(f"disabling a merged adapter: found {error}, expected an error or the base's outputs")
    sys.exit(0)
off = float((outputs - plain).abs().max())
print(f"outputs with the adapter disabled off the base's: found {off:.3f}, expected < 1e-5")
sys.exit(0 if off < 1e-5 else 1 if torch.equal(outputs, merged) else 3)
