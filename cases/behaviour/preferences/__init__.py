"""The losses of TRL's trainers, compared with their papers."""
