"""The single-process reference of every case, and the tolerances of the comparison."""
