"""A run: request, plan, pipeline, outcomes."""
