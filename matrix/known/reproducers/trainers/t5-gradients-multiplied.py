"""Trainer multiplies T5's gradients by the number of ranks or micro-batches: T5's loss does not use the token count.

Shows with transformers 5.3 to 5.23; not with 4.56. Thread: huggingface/transformers#47688 (open).
Exit code: 0 right, 1 twice the gradient on two ranks, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from transformers import T5Config, T5ForConditionalGeneration, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
RATE = 0.1
IDS, LABELS = torch.randint(2, 64, (2, 2, 8), generator=torch.Generator().manual_seed(1))


def tiny_model():
    torch.manual_seed(0)
    return T5ForConditionalGeneration(T5Config(**SIZES, decoder_start_token_id=0, use_cache=False))


def work(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "ACCELERATE_USE_CPU": "true"}  # not used
    arguments = {"output_dir": folder, "max_steps": 1, "per_device_train_batch_size": 1, "learning_rate": RATE}
    arguments |= {"lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.0, "use_cpu": True}
    arguments |= {"report_to": "none", "save_strategy": "no"}
    rows = [{"input_ids": row, "labels": label} for row, label in zip(IDS, LABELS, strict=True)]
    model = tiny_model()
    Trainer(model=model, args=TrainingArguments(**arguments), train_dataset=rows).train()
    if rank == 0:
        results.put(float((tiny_model().shared.weight - model.shared.weight).norm()))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
        step = results.get()
    expected = tiny_model()
    logits = expected(input_ids=IDS, labels=LABELS).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), LABELS.flatten()).backward()
    ratio = step / float(RATE * expected.shared.weight.grad.norm())
    print(f"step of the weights / step by the mean gradient of both ranks: found {ratio:.3f}, expected 1.000")
    sys.exit({1.0: 0, 2.0: 1}.get(round(ratio, 3), 3))
