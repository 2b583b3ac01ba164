"""EVA with whiten=True divides the components of layers with the same input once for each of these layers.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-26; related: huggingface/peft#2142.
Exit code: 0 divided once, 1 three times, 77 no EVA, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch

try:
    from peft import EvaConfig, LoraConfig, get_peft_model, initialize_lora_eva_weights
except ImportError:
    print("this peft has no EVA", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)
RANK, NAMES = 3, ("query", "key", "value")


class Attention(torch.nn.ModuleDict):
    def forward(self, rows):
        return sum(self[name](rows) for name in NAMES)


rows = torch.randn(64, 8) * torch.arange(1.0, 9.0)
base = Attention({name: torch.nn.Linear(8, 8) for name in NAMES})
chosen = {"init_lora_weights": "eva", "eva_config": EvaConfig(rho=1.0, whiten=True)}
model = get_peft_model(base, LoraConfig(r=RANK, target_modules=[*NAMES], **chosen))
initialize_lora_eva_weights(
    model,
    [{"rows": rows}],
    forward_fn=lambda model, batch: model(batch["rows"]),
    prepare_model_inputs_fn=None,
    prepare_layer_inputs_fn=None,
    show_progress_bar=False,
)
values = torch.linalg.svdvals(rows - rows.mean(0))[:RANK].rsqrt()
lengths = [base[name].lora_A["default"].weight.detach().norm(dim=1) for name in NAMES]


def off(times):
    """How far the lengths, of which EVA scales the whole, are from those of components divided some times."""
    wanted = values**times / (values**times).norm()
    return max(float((each / each.norm() - wanted).norm()) for each in lengths)


once, thrice = off(1), off(3)
print(f"lengths of the components, off those divided once: found {once:.2g}, expected < 0.01 (thrice: {thrice:.2g})")
sys.exit(0 if once < 1e-2 else 1 if thrice < 1e-2 else 3)
