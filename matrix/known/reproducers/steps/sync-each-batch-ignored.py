"""The Trainer ignores sync_each_batch of accelerator_config: it reduces gradients after the last batch of a step only.

Shows with transformers 4.47; not with 5.23. Reported as huggingface/transformers#43899, fixed by #43919.
Exit code: 0 right, 1 the setting has no effect, anything else: something else happened.
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

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
SYNC = {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}


class Telling(Trainer):
    """Tells after each batch if DDP reduced its gradients."""

    told = ()

    def training_step(self, *given, **more):
        loss = super().training_step(*given, **more)
        self.told = (*self.told, bool(self.model_wrapped.require_backward_grad_sync))
        return loss


def reduced(folder, more):
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **SIZES))
    data = [{"input_ids": torch.arange(4), "labels": torch.arange(4)} for _ in range(4)]
    steps = {"max_steps": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
    settings = TrainingArguments(folder, use_cpu=True, report_to=[], save_strategy="no", **steps, **more)
    trainer = Telling(model, settings, train_dataset=data)
    return trainer.train() and list(trainer.told)


def work(rank, folder, results):
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"})
    os.environ.update({"MASTER_ADDR": "localhost", "MASTER_PORT": "29591", "ACCELERATE_USE_CPU": "true"})
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    usual, found = reduced(folder, {}), reduced(folder, SYNC)
    if rank == 0:
        results.put((usual, found))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, (folder, results), nprocs=2, start_method="fork")
    usual, found = results.get()
    print(f"batches after which DDP reduces: found {found}, expected [True, True]; without sync_each_batch {usual}")
    sys.exit(3 if usual != [False, True] else 0 if found == [True, True] else 1 if found == usual else 3)
