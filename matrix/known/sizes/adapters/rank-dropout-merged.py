"""The update of LoHa or LoKr with rank_dropout=0.1, merged in training mode, beside the one merged in evaluation.

Rank 8 on all linear layers, trained for 10 steps at a rate of 1e-3; the argument is the method.
"""

import sys

import peft
import torch
from released import changed_tokens, off, report, smollm, tokens, train

LENGTH = 512
CONFIGS = {"loha": peft.LoHaConfig, "lokr": peft.LoKrConfig}
config = CONFIGS[sys.argv[1]](r=8, alpha=8, rank_dropout=0.1, target_modules="all-linear")
adapted = peft.get_peft_model(smollm(), config)
train(adapted, tokens(128), steps=10, rate=1e-3)
layers = [each for each in adapted.modules() if hasattr(each, "get_delta_weight")]
row = tokens(LENGTH)
with torch.no_grad():
    before = [each.get_base_layer().weight.clone() for each in layers]
    adapted.merge_adapter()
    expected = [each.get_base_layer().weight - base for each, base in zip(layers, before, strict=True)]
    right = adapted(row, use_cache=False).logits
    adapted.unmerge_adapter()
    with adapted.disable_adapter():
        alone = adapted(row, use_cache=False).logits
    adapted.train().merge_adapter()
    found = [each.get_base_layer().weight - base for each, base in zip(layers, before, strict=True)]
    wrong = adapted.eval()(row, use_cache=False).logits
report(
    sys.argv[1],
    update_off=off(torch.cat([each.flatten() for each in found]), torch.cat([each.flatten() for each in expected])),
    logits_off=off(wrong, right),
    of_effect=float((wrong - right).norm() / (right - alone).norm()),
    changed_tokens=changed_tokens(wrong, right),
)
