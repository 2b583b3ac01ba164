"""A 4-bit embedding whose weight became a plain parameter raises, where Linear4bit takes the state that it keeps.

Both call the same function for weights that lost their state, as under FSDP. It reads quant_storage from the layer,
which the embeddings do not have. Shows with bitsandbytes 0.50. No thread found on 2026-11-27; related:
bitsandbytes-foundation/bitsandbytes#1292.
Exit code: 0 right, 1 AttributeError, 77 this version has none on CPUs, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.nn import EmbeddingNF4, Linear4bit

torch.manual_seed(0)
ids, inputs = torch.tensor([3, 0, 5]), torch.randn(3, 64)


def unchanged(layer, given):
    """Compare the outputs of a layer before and after its weight becomes a plain parameter."""
    layer = layer.to("cpu")
    with torch.no_grad():
        expected = layer(given)
        layer.weight = torch.nn.Parameter(layer.weight.data, requires_grad=False)
        return torch.equal(layer(given), expected)


try:
    EmbeddingNF4(8, 64).to("cpu")(ids)
except (AssertionError, NotImplementedError):  # older releases quantise on GPUs only
    print("this version has no 4-bit embeddings on CPUs", file=sys.stderr)
    sys.exit(77)
linear = unchanged(Linear4bit(64, 48, bias=False, quant_type="nf4"), inputs)
try:
    found = "the same rows" if unchanged(EmbeddingNF4(8, 64), ids) else "other rows"
except AttributeError as error:
    found = f"AttributeError: {error}"
print(f"EmbeddingNF4 of a plain parameter: found {found}, expected the same rows; Linear4bit: the same {linear}")
sys.exit(3 if not linear else 0 if found == "the same rows" else 1 if "quant_storage" in found else 3)
