"""Known problems and our own findings, as rows that name cells."""
