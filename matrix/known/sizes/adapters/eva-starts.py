"""The lora_A with which EVA starts adapters of rank 8 on the attention inputs of SmolLM-135M with 4 of its layers.

With the argument prompts, from rows of 256 tokens of a prompt, of which a template has 192, and 256 tokens to learn,
as dictionaries beside batches whose labels are an attribute too. With whiten, of three layers with equal inputs beside
one of them alone.
"""

import sys

import peft
import torch
from released import SMOLLM_135M, off, report, smollm

ROWS, PROMPT, TEMPLATE, LENGTH = 8, 256, 192, 512
NAMES = ["q_proj", "k_proj", "v_proj"]


class WithLabels(dict):
    @property
    def labels(self):
        return self["labels"]


torch.manual_seed(1)
rows = (SMOLLM_135M["vocab_size"] ** torch.rand(ROWS, LENGTH)).long().sub(1)  # as frequent as Zipf's law has words
rows[:, :TEMPLATE] = rows[0, :TEMPLATE]
labels = rows.clone()
labels[:, :PROMPT] = -100


def start(names, batch=WithLabels, **chosen):
    """The lora_A of the projections to queries."""
    eva = peft.EvaConfig(rho=1.0, **chosen)
    config = peft.LoraConfig(r=8, target_modules=names, init_lora_weights="eva", eva_config=eva)
    model = peft.get_peft_model(smollm(num_hidden_layers=4), config)
    given = batch(input_ids=rows, attention_mask=torch.ones_like(rows), labels=labels)
    peft.initialize_lora_eva_weights(model, [given], show_progress_bar=False)
    return [each.detach() for name, each in model.named_parameters() if "q_proj.lora_A" in name]


def span(rows):
    basis = torch.linalg.qr(rows.T)[0]
    return basis @ basis.T


if sys.argv[1] == "prompts":
    found, expected = start(NAMES, dict), start(NAMES)
else:
    found, expected = start(NAMES, whiten=True), start(["q_proj"], whiten=True)


def mean(each_layer):
    return sum(each_layer) / len(found)


def range_of(a):
    """The length of the longest row by that of the shortest."""
    return float(a.norm(dim=1).max() / a.norm(dim=1).min())


report(
    f"{sys.argv[1]}, {ROWS} rows of {LENGTH} tokens",
    span_off=mean(off(span(one), span(two)) for one, two in zip(found, expected, strict=True)),
    lora_A_off=mean(off(one.abs(), two.abs()) for one, two in zip(found, expected, strict=True)),
    range_found=mean(map(range_of, found)),
    range_expected=mean(map(range_of, expected)),
)
