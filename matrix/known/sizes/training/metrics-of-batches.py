"""Evaluation metrics of trl's DPOTrainer or KTOTrainer in unequal batches, beside those of the same rows in equal ones.

The argument is dpo or kto. The model and its reference are SmolLM-135M of two layers, with different random weights.
DPO has 200 pairs in batches of 16, of which the last has 8; 8 divide them. KTO has 48 rows in batches of 4, of which
half are good, in a random order; one batch has all.
"""

import sys
import tempfile

import torch
import trl
from datasets import Dataset
from released import report, smollm, text, words

CHOICE = sys.argv[1]
ROWS, BATCH, EQUAL = {"dpo": (200, 16, 8), "kto": (48, 4, 48)}[CHOICE]
TRAINERS = {"dpo": (trl.DPOConfig, trl.DPOTrainer), "kto": (trl.KTOConfig, trl.KTOTrainer)}
METRICS = {"dpo": ["eval_rewards/accuracies", "eval_rewards/margins"], "kto": ["eval_rewards/chosen"]}[CHOICE]
random = torch.Generator().manual_seed(1)


def texts(seed):
    lengths = torch.randint(4, 32, (ROWS,), generator=random)
    return [text(int(length), 1000 * seed + number) for number, length in enumerate(lengths)]


def evaluated(batch):
    configuration, trainer = TRAINERS[CHOICE]
    arguments = {"per_device_eval_batch_size": batch, "bf16": False, "use_cpu": True, "report_to": "none"}
    with tempfile.TemporaryDirectory() as folder:
        model, reference = (smollm(seed=seed, num_hidden_layers=2, use_cache=False) for seed in (0, 1))
        data = {"train_dataset": rows, "eval_dataset": rows, "processing_class": words(folder)}
        trainer = trainer(model=model, ref_model=reference, args=configuration(folder, **arguments), **data)
        trainer.evaluate()
    logged = next(entry for entry in trainer.state.log_history if METRICS[0] in entry)
    return {metric: logged[metric] for metric in METRICS}


if CHOICE == "dpo":
    rows = {name: texts(seed) for seed, name in enumerate(("prompt", "chosen", "rejected"))}
else:
    good = (torch.randperm(ROWS, generator=random) < ROWS // 2).tolist()
    rows = {"prompt": texts(0), "completion": texts(1), "label": good}
rows = Dataset.from_dict(rows)
for batch in (BATCH, EQUAL):
    report(f"{CHOICE}, {ROWS} rows in batches of {batch}", **evaluated(batch))
