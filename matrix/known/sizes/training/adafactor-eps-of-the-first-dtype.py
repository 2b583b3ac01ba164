"""The first step of torch's Adafactor for float32 norms after bfloat16 weights in a group, beside the norms alone.

The gradients are those of SmolLM-135M in autocast to bfloat16.
"""

import torch
from released import off, report, smollm, tokens

LENGTH = 256
model = smollm().to(torch.bfloat16)
norms = [each for name, each in model.named_parameters() if "norm" in name]
for each in norms:
    each.data = each.data.float()
row = tokens(LENGTH)
with torch.autocast("cpu", torch.bfloat16):
    model(input_ids=row, labels=row, use_cache=False).loss.backward()
first = model.get_input_embeddings().weight


def steps(*before):
    """The steps of the norms, with other weights before them in their group."""
    copies = [torch.nn.Parameter(each.detach().clone()) for each in (*before, *norms)]
    for copy, each in zip(copies, (*before, *norms), strict=True):
        copy.grad = each.grad.to(copy.dtype)
    torch.optim.Adafactor(copies, lr=1e-2, foreach=False).step()
    return [each.detach() - copy.detach() for each, copy in zip(norms, copies[len(before) :], strict=True)]


found, expected = steps(first), steps()
shares = sorted(float(one.norm() / two.norm()) for one, two in zip(found, expected, strict=True))
size = max(float(each.grad.square().mean().sqrt()) for each in norms)
report(
    f"{len(norms)} norms",
    largest_gradient=size,
    steps_off=off(torch.cat(found), torch.cat(expected)),
    least_share_of_step=shares[0],
    median_share_of_step=shares[len(shares) // 2],
)
