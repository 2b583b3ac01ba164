"""The option space: options, cases and verdicts. Declarations only, no torch."""
