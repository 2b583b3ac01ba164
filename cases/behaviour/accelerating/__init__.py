"""accelerate on its own: saved models, checkpoints loaded in parts, device maps, loaders and wrappers."""
