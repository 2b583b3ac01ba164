"""Makes text of results safe to show: no control characters, and nothing that reverses the reading order.

Results hold what other programs printed. Jinja and JSON escape markup; this module removes what escaping leaves.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from typing import Any, Final

from reports.results.wording import HARMFUL

KEPT: Final = frozenset("\n\t")
LONGEST: Final = 20_000  # characters of one text, such as a traceback


@cache
def harmful() -> re.Pattern[str]:
    """Match the characters of the categories that `wording.plain` replaces, which it tests one by one."""
    found = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in HARMFUL and chr(code) not in KEPT
    ]
    return re.compile(f"[{re.escape(''.join(found))}]")


def safe(text: str) -> str:
    """Return the text without harmful characters, and without its middle if it is very long."""
    text = shortened(text)
    if text.isascii() and text.isprintable():
        return text
    return harmful().sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text with its middle left out if it is very long; a traceback has what matters at its ends."""
    if len(text) <= longest:
        return text
    left_out = len(text) - longest
    return f"{text[: longest // 2]}\n… {left_out} characters left out …\n{text[-longest // 2 :]}"


def safe_data(value: Any) -> Any:
    """Return nested lists and mappings with safe texts; NaN and infinities become their names."""
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, dict):
        return {safe(str(name)): safe_data(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [safe_data(each) for each in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value
