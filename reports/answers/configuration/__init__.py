"""Configuration files of a training job, read and edited."""
