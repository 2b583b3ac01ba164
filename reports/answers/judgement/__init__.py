"""Judges a job with some versions by everything published: measured cells, and errors with the jobs that meet them."""
