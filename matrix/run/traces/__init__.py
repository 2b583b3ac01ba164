"""Compares what two runs of one case recorded of their modules and of the functions of the stack."""
