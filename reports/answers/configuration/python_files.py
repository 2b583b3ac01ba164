"""Reads a Python script as far as its text tells: the commands in its docstring, and the trainers that it imports.

The code of a script configures the job as well. It is not run, and only the names that it imports are read.
"""

from __future__ import annotations

import ast
import re
from typing import Final

SUFFIX: Final = ".py"
TRAINER_CLASS: Final = re.compile(r"([A-Z]\w*?)Trainer$")
GENERAL: Final = frozenset({"", "seq2seq", "custom", "my", "hf", "transformers", "base"})  # they name no objective


def commands(text: str) -> str:
    """Return the docstring of a script, on the lines where it stands; empty if the script has none or is no Python."""
    tree = parsed(text)
    first = tree.body[0] if tree is not None and tree.body else None
    if tree is None or first is None or ast.get_docstring(tree) is None:
        return ""
    return "\n" * (first.lineno - 1) + (ast.get_docstring(tree, clean=False) or "")


def imported_trainers(text: str) -> tuple[str, ...]:
    """Return what the imported trainer classes train with, such as ``grpo`` for ``GRPOTrainer``, in order."""
    tree = parsed(text)
    names = [
        alias.name
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    found = [match[1].lower() for name in names if (match := TRAINER_CLASS.search(name))]
    return tuple(dict.fromkeys(each for each in found if each not in GENERAL))


def parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
