"""Qwen 3 (https://arxiv.org/abs/2505.09388): Qwen 2 without biases, with RMSNorm on each head's queries and keys."""

from __future__ import annotations

from cases.reference.models.qwen2 import TABLES, logits

__all__ = ["TABLES", "logits"]
