"""destroy_process_group of torch may hang straight after a collective of Gloo, whose thread waits for the GIL.

Shows with torch 2.2 to 2.7, in some groups only; 2.8 and newer are right. pytorch/pytorch#56297.
Exit code: 0 right, 1 a process hung, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import multiprocessing

import torch
import torch.distributed as dist

GROUPS = 600


def gather_and_destroy(done):
    """Make groups of this process alone, gather once in each, and destroy it."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        for _ in range(GROUPS):
            group = dist.new_group()
            dist.all_gather([torch.empty(1)], torch.ones(1), group=group)
            dist.destroy_process_group(group)
            del group
            done.value += 1
    os._exit(0)


done = multiprocessing.get_context("fork").Value("i", 0)
child = multiprocessing.get_context("fork").Process(target=gather_and_destroy, args=(done,), daemon=True)
child.start()
child.join(60)
hung = child.is_alive()
if hung:
    child.kill()
print(f"groups destroyed within 60 s: found {done.value}, expected {GROUPS}")
sys.exit(0 if child.exitcode == 0 and done.value == GROUPS else 1 if hung else 3)
