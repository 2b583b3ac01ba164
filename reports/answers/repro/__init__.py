"""A red cell as a bug report: the script that shows it, its text, and whether the script does."""
