"""Trainers and accelerate as they are: steps, schedules, logs, evaluation, resuming."""
