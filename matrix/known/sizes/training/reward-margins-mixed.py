"""A step of RewardTrainer on eight pairs with Llama 2's margins, beside the gradient with the margin of each row.

The model is SmolLM-135M of two layers, with a head for one reward. arXiv:2307.09288 has margins of 1/3, 2/3 and 1.
"""

import tempfile

import torch
import trl
from datasets import Dataset
from released import SMOLLM_135M, off, report, text, words
from transformers import LlamaConfig, LlamaForSequenceClassification

LENGTH, PAIRS, LAYERS = 64, 8, 2
SIDES = ("chosen", "rejected")
margins = torch.tensor([1 / 3, 2 / 3, 1, 1 / 3, 1, 2 / 3, 1 / 3, 1])


def model():
    torch.manual_seed(0)
    sizes = {**SMOLLM_135M, "num_hidden_layers": LAYERS}
    return LlamaForSequenceClassification(LlamaConfig(**sizes, use_cache=False, pad_token_id=2, num_labels=1))


rows = {side: [text(LENGTH, 100 * seed + pair) for pair in range(PAIRS)] for seed, side in enumerate(SIDES)}
trained = model()
with tempfile.TemporaryDirectory() as folder:
    arguments = {"max_steps": 1, "per_device_train_batch_size": PAIRS, "lr_scheduler_type": "constant", "optim": "sgd"}
    arguments |= {"learning_rate": 1.0, "max_grad_norm": 0.0, "logging_steps": 1, "save_strategy": "no", "bf16": False}
    arguments |= {"use_cpu": True, "report_to": "none", "gradient_checkpointing": False}
    trainer = trl.RewardTrainer(
        model=trained,
        args=trl.RewardConfig(folder, **arguments),
        train_dataset=Dataset.from_dict({**rows, "margin": margins.tolist()}),
        processing_class=words(folder),
    )
    trainer.train()
    ids = [torch.tensor(trainer.train_dataset[f"input_ids_{side}"]) for side in SIDES]
start = model()
chosen, rejected = (start(input_ids=side).logits[:, 0] for side in ids)
loss = -torch.nn.functional.logsigmoid(chosen - rejected - margins).mean()
loss.backward()
logged = next(each["loss"] for each in trainer.state.log_history if "loss" in each)
step = (start.score.weight - trained.score.weight).detach()
report(
    f"{LAYERS} layers, {PAIRS} pairs of {ids[0].shape[1]} tokens",
    loss=logged,
    expected_loss=float(loss.detach()),
    gradient_off=off(step, start.score.weight.grad),
    spread_of_rewards=float((chosen - rejected).detach().std()),
)
