"""Evidence that each option took effect: a silently ignored option is the worst kind of incompatibility."""
