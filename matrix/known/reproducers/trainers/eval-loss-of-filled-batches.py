"""On two ranks, Trainer's eval_loss counts the rows that fill up the last batch.

Shows with transformers 4.47 to 5.23. No thread found on 2026-11-23; related: huggingface/trl#7010.
Exit code: 0 right, 1 the rows that fill up the last batch count, anything else: something else happened.
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
ROWS = torch.randint(0, 64, (5, 8), generator=torch.Generator().manual_seed(1))
LABELS = ROWS.masked_fill(torch.arange(8) == 0, -100)  # no token predicts the first


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False))


def loss(*rows):
    with torch.no_grad():
        return float(model().eval()(input_ids=ROWS[[*rows]], labels=LABELS[[*rows]]).loss)


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "ACCELERATE_USE_CPU": "true"}  # not used
    arguments = TrainingArguments(output_dir=folder, per_device_eval_batch_size=2, use_cpu=True, report_to="none")
    rows = [{"input_ids": row, "labels": label} for row, label in zip(ROWS, LABELS, strict=True)]
    found = Trainer(model=model(), args=arguments, eval_dataset=rows).evaluate()
    if rank == 0:
        results.put(found["eval_loss"])
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        found = results.get()
    expected = loss(*range(5))  # the rows have as many tokens
    filled = (4 * loss(0, 1, 2, 3) + loss(4, 0)) / 5  # row 0 fills up the last batch of rank 0
    print(f"eval_loss of 5 rows: found {found:.5f}, expected {expected:.5f}")
    sys.exit(0 if abs(found - expected) < 1e-5 else 1 if abs(found - filled) < 1e-5 else 3)
