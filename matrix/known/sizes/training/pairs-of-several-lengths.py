"""The loss and gradient of DPOTrainer for four pairs, beside those of its formula: prompts of 60 to 240 tokens.

The answers have 40 to 300 tokens. The model is SmolLM-135M with 4 of its layers, and its reference was trained for 10
steps at a rate of 1e-4; beta is 0.1. The argument is ld_alpha, or plain for a loss without it.
"""

import sys
import tempfile

import torch
from datasets import Dataset
from released import off, report, smollm, text, tokens, train, words
from trl import DPOConfig, DPOTrainer

LENGTHS = ((60, 100, 300), (120, 220, 40), (180, 150, 160), (240, 80, 200))  # prompt, chosen, rejected
BETA, ALPHA = 0.1, None if sys.argv[1] == "plain" else float(sys.argv[1])
pairs = [
    {"prompt": text(p, n), "chosen": " " + text(c, n + 10), "rejected": " " + text(r, n + 20)}
    for n, (p, c, r) in enumerate(LENGTHS)
]


def model():
    return smollm(num_hidden_layers=4, eos_token_id=0, pad_token_id=2)


with tempfile.TemporaryDirectory() as folder:
    chosen = {"beta": BETA, "per_device_train_batch_size": len(pairs), "max_length": 1024, "bf16": False}
    chosen |= {"ld_alpha": ALPHA} if ALPHA is not None else {}
    arguments = DPOConfig(folder, **chosen, use_cpu=True, report_to="none", remove_unused_columns=False)
    reference = train(model(), tokens(128), steps=10, rate=1e-4)
    trainer = DPOTrainer(
        model=model(),
        ref_model=reference,
        args=arguments,
        train_dataset=Dataset.from_list(pairs),
        processing_class=(tokeniser := words(folder)),
    )
    policy = trainer.model.eval()
    given = next(iter(trainer.get_train_dataloader()))
    found_loss = trainer.compute_loss(policy, given)
    found_loss.backward()
    found = torch.cat([each.grad.flatten() for each in policy.parameters()])


def log_probability(judge, prompt, answer, other):
    """The sum over the answer and its end token; ld_alpha weighs those that the other answer is too short for."""
    start = tokeniser(prompt)["input_ids"]
    end, length = ([*tokeniser(each)["input_ids"], tokeniser.eos_token_id] for each in (answer, other))
    row = torch.tensor([start + end])
    each = judge(row[:, :-1], use_cache=False).logits.log_softmax(-1).gather(-1, row[:, 1:, None])[0, -len(end) :, 0]
    weights = torch.ones(len(end))
    weights[len(length) :] = 1.0 if ALPHA is None else ALPHA
    return (each * weights).sum()


policy.zero_grad()
expected_loss = 0.0
for pair in pairs:
    sides = [(pair["chosen"], pair["rejected"]), (pair["rejected"], pair["chosen"])]
    with torch.no_grad():
        before = [log_probability(reference, pair["prompt"], *side) for side in sides]
    now = [log_probability(policy, pair["prompt"], *side) for side in sides]
    margin = (now[0] - before[0]) - (now[1] - before[1])
    loss = -torch.nn.functional.logsigmoid(BETA * margin) / len(pairs)
    loss.backward()
    expected_loss += float(loss)
expected = torch.cat([each.grad.flatten() for each in policy.parameters()])
report(
    f"{len(pairs)} pairs, ld_alpha {ALPHA}",
    loss=float(found_loss),
    expected_loss=expected_loss,
    gradient_off=off(found, expected),
)
