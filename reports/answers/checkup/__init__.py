"""Checks an environment, and the configuration files of a job, against measured results."""
