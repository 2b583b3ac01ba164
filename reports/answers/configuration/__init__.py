"""Reads and edits the configuration files of a training job."""
