"""The single-process reference of every case, and how far a case may be from it."""
