"""The share of 10,000 rows that an epoch of accelerate's seedable sampler leaves out on two ranks."""

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from released import on_ranks, report

ROWS, BATCH, RANKS = 10_000, 8, 2


def work(rank, _folder, results):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(3, device_specific=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(range(ROWS), batch_size=BATCH, shuffle=True))
    rows = torch.cat(list(loader))
    every = [torch.empty_like(rows) for _ in range(RANKS)]
    torch.distributed.all_gather(every, rows)
    if rank == 0:
        results.put(len(torch.cat(every).unique()))


seen = on_ranks(work, RANKS)
report(f"{ROWS} rows, batches of {BATCH} on {RANKS} ranks", never_seen=1 - seen / ROWS)
