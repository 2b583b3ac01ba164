"""What a training of SmolLM-135M of 6 layers changes after an evaluation with bf16_full_eval, beside one without it.

``unchanged`` are the shares of weights that keep their value.
"""

import tempfile

import torch
from released import off, report, smollm, tokens
from transformers import Trainer, TrainingArguments

LENGTH, STEPS, LAYERS = 256, 10, 6
rows = [{"input_ids": row, "labels": row} for row in tokens(LENGTH * STEPS).reshape(STEPS, LENGTH)]


def changes(rate, *, evaluated):
    model = smollm(num_hidden_layers=LAYERS, use_cache=False)
    before = torch.cat([each.detach().flatten() for each in model.parameters()])
    with tempfile.TemporaryDirectory() as folder:
        arguments = {"max_steps": STEPS, "per_device_train_batch_size": 1, "lr_scheduler_type": "constant"}
        arguments |= {"learning_rate": rate, "use_cpu": True, "report_to": "none", "save_strategy": "no"}
        arguments = TrainingArguments(folder, bf16_full_eval=True, **arguments)
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:1])
        if evaluated:
            trainer.evaluate()
            before = before.bfloat16().float()
        trainer.train()
    return torch.cat([each.detach().float().flatten() for each in model.parameters()]) - before


for rate in (1e-5, 2e-4):
    expected, found = (changes(rate, evaluated=each) for each in (False, True))
    report(
        f"{LAYERS} layers, {STEPS} steps of {LENGTH} tokens at a rate of {rate}",
        changes_off=off(found, expected),
        unchanged=float((found == 0).double().mean()),
        unchanged_without_evaluation=float((expected == 0).double().mean()),
    )
