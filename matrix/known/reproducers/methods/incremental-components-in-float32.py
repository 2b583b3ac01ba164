"""PEFT's IncrementalPCA cannot transform float32 samples after one batch.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-26; related: huggingface/peft#3617.
Exit code: 0 transformed, 1 torch refuses the product, 77 no IncrementalPCA, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

try:
    from peft.utils.incremental_pca import IncrementalPCA
except ImportError:
    print(f"peft {peft.__version__} has no IncrementalPCA", file=sys.stderr)
    sys.exit(77)


def off(dtype, batches):
    """How far coordinates are from those of the components, or the error."""
    torch.manual_seed(0)
    samples = torch.randn(24, 4, dtype=dtype)
    made = IncrementalPCA(n_components=2)
    for batch in samples.chunk(batches):
        made.partial_fit(batch.clone())
    try:
        found = made.transform(samples)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    wanted = (samples.double() - samples.double().mean(0)) @ made.components_.double().T
    return "none" if (found - wanted).abs().max() < 1e-4 else "coordinates"


alike = [off(torch.float64, 1), off(torch.float32, 2)]
found = off(torch.float32, 1)
print(f"error after one float32 batch: found {found!r}, expected 'none' (float64, and two batches: {alike})")
if alike != ["none", "none"]:
    sys.exit(3)
sys.exit(0 if found == "none" else 1 if "same dtype" in found or "scalar type" in found else 3)
