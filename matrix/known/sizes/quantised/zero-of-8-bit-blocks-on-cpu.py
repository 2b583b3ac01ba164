"""Weights of SmolLM-135M of two layers after a training by bitsandbytes' Adam8bit on a CPU, beside Adam32bit.

The embeddings are not tied, so that rows of tokens that never come have no gradient.
"""

import bitsandbytes
import torch
from released import off, report, smollm, tokens

LENGTH, STEPS, RATE, LAYERS = 128, 10, 1e-4, 2
row = tokens(LENGTH)


def changes(optimiser):
    model = smollm(num_hidden_layers=LAYERS, tie_word_embeddings=False).train()
    before = [each.detach().clone() for each in model.parameters()]
    optimiser = optimiser(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        model(input_ids=row, labels=row, use_cache=False).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    moved = [each.detach() - start for each, start in zip(model.parameters(), before, strict=True)]
    embeddings = moved[0]
    unseen = torch.ones(len(embeddings), dtype=torch.bool)
    unseen[row[0]] = False
    return torch.cat([each.flatten() for each in moved]), embeddings[unseen], embeddings[~unseen]


expected, found = changes(bitsandbytes.optim.Adam32bit), changes(bitsandbytes.optim.Adam8bit)
report(
    f"{LAYERS} layers, {STEPS} steps of {LENGTH} tokens at a rate of {RATE}",
    changes_off=off(found[0], expected[0]),
    largest_change_of_unseen_rows=float(found[1].abs().max()),
    moved_of_unseen_rows=float((found[1] != 0).double().mean()),
    largest_change_of_seen_rows=float(found[2].abs().max()),
)
