"""The search for the package and the release that made a green cell red."""
