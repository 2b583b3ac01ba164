"""What commands run: searches, repeats and scripts."""
