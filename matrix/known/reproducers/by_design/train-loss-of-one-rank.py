"""Trainer.train() returns a train_loss of the rank alone, while the logged loss is the mean of all ranks.

Shows with transformers 4.47 to 5.23. The maintainers' answer: https://github.com/huggingface/transformers/issues/12220.
Exit code: 0 mean of both ranks, 1 rank 0 alone, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ROWS = torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(1))


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False))


def loss(row):
    with torch.no_grad():
        logits = model()(input_ids=row[None]).logits[0, :-1]
    return float(torch.nn.functional.cross_entropy(logits, row[1:]))


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "ACCELERATE_USE_CPU": "true"}  # not used
    arguments = {"output_dir": folder, "max_steps": 1, "per_device_train_batch_size": 1, "use_cpu": True}
    arguments |= {"report_to": "none", "save_strategy": "no"}
    rows = [{"input_ids": row, "labels": torch.cat([torch.tensor([-100]), row[1:]])} for row in ROWS]
    found = Trainer(model=model(), args=TrainingArguments(**arguments), train_dataset=rows).train()
    if rank == 0:
        results.put(found.training_loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = results.get()
    alone = [loss(row) for row in ROWS]
    expected = sum(alone) / 2
    print(f"train_loss of one step with a row on each rank: found {found:.4f}, expected {expected:.4f}")
    sys.exit(0 if abs(found - expected) < 1e-3 else 1 if min(abs(found - each) for each in alone) < 1e-3 else 3)
