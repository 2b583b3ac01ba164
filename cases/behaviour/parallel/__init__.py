"""The parts of DDP, FSDP and accelerate that small models hide."""
