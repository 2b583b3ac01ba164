r"""Translates regular expressions of Python to those of JavaScript, and refuses what JavaScript lacks.

In JavaScript, ``\w``, ``\d`` and ``\b`` know ASCII only. Names of the stack are ASCII, so this makes no difference
to them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from matrix.errors import UserError
from reports.answers.diagnosis.signatures import PIECE

NAMED_GROUP: Final = re.compile(r"\(\?P<(\w+)>")
NAMED_CHARACTER: Final = re.compile(r"\\N\{([A-Z ]+)\}")
NAMED_REFERENCE: Final = re.compile(r"\(\?P=(\w+)\)")
REPLACED_GROUP: Final = re.compile(r"\\g<(\w+)>")
ANY_CASE: Final = "(?i:"
# Python-only: comments, conditions, atomic groups, possessive quantifiers, and flags within a pattern.
UNKNOWN: Final = re.compile(r"\(\?(?:#|\(|>|[aiLmsux]+[-:)]|-)|[*+?}]\+")
UNKNOWN_ESCAPES: Final = frozenset({r"\A", r"\Z", r"\a", r"\N"})


def pattern(text: str) -> str:
    """Return the pattern as JavaScript writes it.

    Raises:
        UserError: it uses a feature that JavaScript lacks.
    """
    named = NAMED_CHARACTER.sub(lambda match: unicodedata.lookup(match[1]), text)
    translated = in_any_case(NAMED_REFERENCE.sub(r"\\k<\1>", NAMED_GROUP.sub(r"(?<\1>", named)))
    outside_of_classes = "".join("x" if piece.startswith(("[", "\\")) else piece for piece in PIECE.findall(translated))
    found = UNKNOWN.search(outside_of_classes)
    escapes = UNKNOWN_ESCAPES & {*PIECE.findall(translated)}
    if found or escapes:
        what = found[0] if found else min(escapes)
        raise UserError(
            f"pattern {text!r}: JavaScript has no {what!r}, and the site could not use it; write it without"
        )
    return "".join(class_of(piece) if piece.startswith("[") else piece for piece in PIECE.findall(translated))


def in_any_case(text: str) -> str:
    """Write out groups that ignore case, ``(?i:no)`` as ``(?:[nN][oO])``: not every browser knows such groups."""
    parts = text.split(ANY_CASE)
    rest = parts[0]
    for part in parts[1:]:
        pieces, depth, end = PIECE.findall(part), 1, 0
        while depth:
            depth += {"(": 1, ")": -1}.get(pieces[end], 0)
            end += 1
        rest += f"(?:{''.join(map(either_case, pieces[:end]))}{''.join(pieces[end:])}"
    return rest


def either_case(piece: str) -> str:
    """Return a class of both cases of a letter; other pieces stay, as no group of ours has classes of letters."""
    return f"[{piece.lower()}{piece.upper()}]" if len(piece) == 1 and piece.isalpha() else piece


def class_of(piece: str) -> str:
    """Return a class of characters; Python takes a ``]`` that comes first as itself."""
    start = 2 if piece.startswith("[^") else 1
    return f"{piece[:start]}\\]{piece[start + 1 :]}" if piece[start] == "]" else piece


def replacement(text: str) -> str:
    """Return the text that replaces a match, with its references to groups."""
    return REPLACED_GROUP.sub(r"$<\1>", text.replace("$", "$$"))
