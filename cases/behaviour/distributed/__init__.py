"""DDP, FSDP and distributed checkpoints of torch as scripts use them: between passes, after loading, by some ranks."""
