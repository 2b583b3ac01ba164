"""Exports the data with which the browser explains a log: rows, expressions, evidence, and cells of the judgement."""
