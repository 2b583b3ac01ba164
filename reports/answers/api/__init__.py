"""Answers from the map of the API: names that one package takes from another, and in which releases they are."""
