"""Gemma 2, loaded without attn_implementation, drops the soft cap on attention scores.

Shows with transformers 4.44 and 4.49 to 5.20; not with 4.47 and 5.21. Thread: huggingface/transformers#32848 (2024).
Exit code: 0 capped, 1 not capped, 77 this version has no Gemma 2, anything else: something else happened.
"""

import math
import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import transformers

if not hasattr(transformers, "Gemma2Config"):
    print(f"transformers {transformers.__version__} has no Gemma 2", file=sys.stderr)
    sys.exit(77)

CAP, HEADS, SIZE = 0.5, 4, 8
SIZES = {"vocab_size": 64, "hidden_size": HEADS * SIZE, "intermediate_size": 64, "num_hidden_layers": 1}
ATTENTION = {
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": SIZE,
    "query_pre_attn_scalar": SIZE,
}
config = transformers.Gemma2Config(**SIZES, **ATTENTION, attn_logit_softcapping=CAP, initializer_range=0.3)
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    transformers.Gemma2ForCausalLM(config).save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
attention, seen = model.model.layers[0].self_attn, {}
attention.q_proj.register_forward_hook(lambda _module, inputs, _output: seen.update(inputs=inputs[0]))
attention.o_proj.register_forward_hook(lambda _module, inputs, _output: seen.update(attended=inputs[0]))
with torch.no_grad():
    model(torch.arange(6)[None])
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    query, key, value = (each(seen["inputs"]).view(6, HEADS, SIZE).transpose(0, 1) for each in projections)
angles = torch.arange(6.0)[:, None] * 10_000 ** (-torch.arange(0, SIZE, 2) / SIZE).repeat(2)
query, key = (
    each * angles.cos() + torch.cat([-each[..., SIZE // 2 :], each[..., : SIZE // 2]], -1) * angles.sin()
    for each in (query, key)
)
scores = query @ key.mT / math.sqrt(SIZE)
off = {}
for name, chosen in (("capped", CAP * torch.tanh(scores / CAP)), ("uncapped", scores)):
    causal = chosen.masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    off[name] = float(((causal.softmax(-1) @ value).transpose(0, 1).flatten(1) - seen["attended"][0]).abs().max())
print(f"attention: found {off['capped']:.2g} off capped and {off['uncapped']:.2g} off uncapped scores, expected capped")
sys.exit(0 if off["capped"] < 1e-5 else 1 if off["uncapped"] < 1e-5 else 3)
