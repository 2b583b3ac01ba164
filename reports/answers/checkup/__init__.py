"""Whether an environment and a job are sound, as far as was measured."""
