"""GRPOTrainer's eval_loss for 100 prompts of 8 completions in batches of 16 rows, beside the mean of its batches.

SmolLM-135M with 2 of its layers and completions of up to 16 tokens; the reward is the share of even words.
"""

import tempfile

import torch
from datasets import Dataset
from released import report, smollm, text, words
from trl import GRPOConfig, GRPOTrainer

PROMPTS = Dataset.from_list([{"prompt": text(32, number)} for number in range(100)])
losses = []


class LossRecorder(GRPOTrainer):
    def compute_loss(self, *arguments, **named):
        return losses.append(super().compute_loss(*arguments, **named)) or losses[-1]


def even(completions, **_):
    return [sum(word[-1] in "02468" for word in each.split()) / 16 for each in completions]


with tempfile.TemporaryDirectory() as folder:
    chosen = {"num_generations": 8, "per_device_train_batch_size": 8, "per_device_eval_batch_size": 16, "max_steps": 1}
    arguments = GRPOConfig(folder, **chosen, max_completion_length=16, use_cpu=True, bf16=False, report_to="none")
    trainer = LossRecorder(
        model=smollm(num_hidden_layers=2, eos_token_id=0, pad_token_id=2),
        reward_funcs=even,
        args=arguments,
        train_dataset=PROMPTS,
        eval_dataset=PROMPTS,
        processing_class=words(folder),
    )
    trainer.train()
    losses.clear()
    found = trainer.evaluate()["eval_loss"]
each = torch.stack([loss.detach() for loss in losses])
spread, expected = float(each.std()), float(each.mean())
report(
    f"{len(losses)} batches",
    found=found,
    expected=expected,
    spread_of_batches=spread,
    off_of_spread=abs(found - expected) / spread,
)
