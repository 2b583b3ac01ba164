"""Settings of trainers that must reach another part: methods that set them, callbacks, loaders, DDP, random numbers."""
