"""Text of results cannot control a terminal, reverse the reading order or grow without bound."""

from __future__ import annotations

import json
import unicodedata

import pytest

from reports.site.safe_text import LONGEST, safe, safe_data, shortened


@pytest.mark.parametrize("char", ["\x1b", "\x00", "\x07", "\u202e", "\u2066", "\u200b", "\ud800", "\x7f", "\x9b"])
def test_harmful_characters_become_replacement_characters(char: str) -> None:
    assert safe(f"a{char}b") == "a\N{REPLACEMENT CHARACTER}b"


def test_letters_of_all_scripts_stay() -> None:
    text = "größe 模型 مرحبا \n\t<b>&amp;"
    assert safe(text) == text


def test_nested_data_is_safe_and_is_strict_json() -> None:
    data = safe_data({"a\x1b": ["\u202e", float("nan"), (1, {"b": "\ud800"})]})
    text = json.dumps(data, allow_nan=False, ensure_ascii=False)
    assert not [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs")]
    assert data["a\N{REPLACEMENT CHARACTER}"][1] == "nan"


def test_a_long_text_keeps_its_ends() -> None:
    text = shortened("start " + "x" * 10_000_000 + " end")
    assert text.startswith("start ")
    assert text.endswith(" end")
    assert len(text) < LONGEST + 100
