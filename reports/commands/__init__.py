"""The commands of ``ftmatrix``, one per module; ``reports.cli`` registers them."""
