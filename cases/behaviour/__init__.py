"""Calls that compare what the libraries do with what a paper or the documentation defines.

Each call computes the expected value in another way: from the formula, with the reference network, or by hand.
"""
