"""Expressions of Python become expressions of JavaScript with the same meaning, or are refused."""

from __future__ import annotations

import re

import pytest

from matrix.errors import UserError
from reports.answers.support.phrases import PHRASES
from reports.site.diagnosis.explain_data import EXPRESSIONS, all_patterns, expression
from reports.site.diagnosis.javascript_patterns import pattern, replacement


@pytest.mark.parametrize(
    ("python", "javascript"),
    [
        (r"(?P<name>a)(?P=name)", r"(?<name>a)\k<name>"),
        (r"x(?i:no|n1)y", r"x(?:[nN][oO]|[nN]1)y"),
        (r"[]a]", r"[\]a]"),
        (r"[^]a]", r"[^\]a]"),
        (r"\N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}"),
        (r"(?<![\w.])a{2,3}?\b", r"(?<![\w.])a{2,3}?\b"),
    ],
)
def test_a_pattern_is_translated(python: str, javascript: str) -> None:
    assert pattern(python) == javascript


@pytest.mark.parametrize("text", [r"(?x)a", r"(?>a)", r"a++", r"\Aa", r"a\Z", "(?#note)a", "(a)(?(1)b|c)"])
def test_a_feature_that_javascript_lacks_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="JavaScript has no"):
        pattern(text)


def test_flags_of_a_compiled_expression_are_kept() -> None:
    assert expression(re.compile("(?i)a$", re.MULTILINE)) == ["a$", "im"]


def test_references_to_groups_are_translated_in_replacements() -> None:
    assert replacement(r"\g<quant> $1") == "$<quant> $$1"


def test_every_expression_of_the_diagnosis_and_the_vocabulary_can_be_used() -> None:
    for text in all_patterns():
        pattern(text)
    for module, names in EXPRESSIONS.items():
        for name in names:
            expression(getattr(module, name))
    for compiled, _ in PHRASES:
        pattern(compiled.pattern)
