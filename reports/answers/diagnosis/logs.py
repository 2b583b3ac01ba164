"""Reads a log of any length down to its distinct lines, and the package versions that it names.

A training log repeats the same lines with other numbers. This module keeps each line once, ignoring digits, so that it
reads 200 MB in a second with a few megabytes of memory.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from packaging.version import InvalidVersion, Version

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGABYTE: Final = 1024 * 1024
BLOCK: Final = 2 * MEGABYTE  # read at once
WHOLE: Final = 4 * MEGABYTE  # of distinct lines that are all kept; after these, those about errors, and the end
LATER: Final = 8 * MEGABYTE  # and of one block, so that noise in one leaves room for the next
SHARE: Final = MEGABYTE // 8
END: Final = MEGABYTE
LINE: Final = MEGABYTE // 16  # of a longer one, both ends
BEFORE, AFTER = 100, 5  # lines around one that is about an error: its traceback stands above it
REMEMBERED: Final = 200_000  # lines that are known again
ABOUT_ERRORS: Final = (b"rror", b"xception", b"raceback", b"ssert", b"llegal", b"issing", b"ismatch", b" nan")
CUT: Final = b" ... "
CONTROLS: Final = bytes({*range(32), 127} - set(b"\t\n\r\b\f\x1b"))
GARBAGE: Final = 0.05  # share of them

NAMES: Final = r"(?P<name>pytorch|torch|transformers|peft|bitsandbytes|accelerate|trl)"
NUMBER: Final = r"v?(?P<version>\d+(?:\.\d+)+[\w.+!]*)"
QUOTE: Final = r"[`'\"*]*"
STATED: Final = (
    rf"(?<![\w.-]){NAMES}\s?===?\s?{NUMBER}",  # pip freeze
    rf"(?<![\w.-]){NAMES}-{NUMBER}(?=\.dist-info|-(?:cp|py)\d|[\s,)]|$)",  # a folder, a wheel, what pip installed
    rf"(?<![\w.-]){NAMES}{QUOTE}(?: version)?{QUOTE}(?: \([^)\n]*\))?{QUOTE} ?[:=] ?{QUOTE}{NUMBER}",  # accelerate env
    rf"^[ \t]*{NAMES}[ \t]{{2,}}{NUMBER}(?=[ \t]*$|[ \t]{{2,}})",  # pip list
)
HAD: Final = rf"\byou(?:'ll)? have {NAMES} {NUMBER}"  # pip, after what a package requires
WANTED: Final = (  # lines about what is asked for, or gone
    r"\brequires\b|requirement|depends on|user requested|no matching distribution|\bcollecting\b|"
    r"\buninstall|existing installation|\b(?:pip3?|conda|mamba) install\b|\buv (?:pip install|add)\b"
)
MENTIONED: Final = rf"(?:^[\s*•>-]*|[,;(|]\s*){NAMES}(?: version)? {NUMBER}(?=\s*(?:[,;)|]|$))"
STATEMENT: Final = tuple(re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in STATED)
MENTION: Final = re.compile(MENTIONED, re.IGNORECASE | re.MULTILINE)
HAVING: Final = re.compile(HAD, re.IGNORECASE)
WANTING: Final = re.compile(WANTED, re.IGNORECASE)


def read(path: Path | None) -> str:
    """The distinct lines of a file, or of standard input.

    Raises:
        UserError: there is nothing to read, or it is no text.
    """
    name = "standard input" if path is None else str(path)
    try:
        with opened(path) as stream:
            text = distinct(stream, name)
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror}); give the log as a file, or pipe it in") from None
    if not text.strip():
        raise UserError(f"{name}: is empty; give the traceback, or better the whole log")
    return text


@contextmanager
def opened(path: Path | None) -> Iterator[IO[bytes]]:
    if path is not None:
        with path.open("rb") as stream:
            yield stream
    elif sys.stdin is None or sys.stdin.isatty():
        raise UserError(
            "standard input is a terminal: name the log's file, or pipe it in, as in `... | ftmatrix explain`"
        )
    else:
        yield sys.stdin.buffer


def distinct(stream: IO[bytes], name: str) -> str:
    """Every line once, numbers apart; of very many, those about errors and the last ones.

    Raises:
        UserError: it is no text.
    """
    kept: list[bytes] = []
    end = b""
    whole, later = WHOLE, LATER
    for lines in new(blocks(stream, name)):
        text = b"\n".join(lines)
        if whole > 0:
            kept.append(text)
            whole -= len(text)
            continue
        end = (end + b"\n" + text)[-END:]
        if later > 0:
            about = b"\n".join(around(lines, text))[:SHARE]
            kept.append(about)
            later -= len(about)
    return b"\n".join([*kept, end]).decode("utf-8", "replace")


def blocks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """The text as UTF-8, cut between lines; the first part is looked at whether it is one."""
    rest = b""
    first = stream.read(BLOCK)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what PowerShell writes
        recoded = codecs.EncodedFile(Rest(first, stream), "utf-8", "utf-16", "replace")
        first, stream = recoded.read(BLOCK), recoded
    if is_garbage(first[:MEGABYTE]):
        raise UserError(f"{name}: is binary and no log; give its text (decompressed, if it is an archive)")
    while first:
        block = (rest + first).replace(b"\r", b"\n")
        cut = block.rfind(b"\n") + 1 or len(block)
        yield block[:cut]
        rest, first = block[cut:], stream.read(BLOCK)
    yield rest


class Rest(io.RawIOBase):
    """What was read already, and then the rest."""

    def __init__(self, first: bytes, stream: IO[bytes]) -> None:
        super().__init__()
        self.first, self.stream = first, stream

    def read(self, size: int = -1) -> bytes:
        part, self.first = self.first, b""
        return part or self.stream.read(size)


def is_garbage(head: bytes) -> bool:
    """Text in whatever encoding has next to no control characters; a tenth of compressed or random bytes are some."""
    return len(head) - len(head.translate(None, CONTROLS)) > GARBAGE * len(head)


def new(found: Iterator[bytes]) -> Iterator[list[bytes]]:
    """The lines of each block that were not there before."""
    seen: set[int] = set()
    for block in found:
        keys = map(hash, block.translate(None, b"0123456789").split(b"\n"))
        lines: list[bytes] = []
        for line, key in zip(block.split(b"\n"), keys, strict=True):
            if key not in seen:
                seen.add(key)
                lines.append(line if len(line) <= LINE else line[: LINE // 2] + CUT + line[-LINE // 2 :])
        if len(seen) > REMEMBERED:
            seen.clear()
        yield lines


def around(lines: list[bytes], text: bytes) -> Iterator[bytes]:
    """The lines that are about errors, each with those before it, in which its traceback stands."""
    if not any(word in text for word in ABOUT_ERRORS):
        return
    upto = 0
    for number, line in enumerate(lines):
        if any(word in line for word in ABOUT_ERRORS):
            yield from lines[max(upto, number - BEFORE) : number + AFTER]
            upto = max(upto, number + AFTER)


def versions(text: str) -> dict[str, str]:
    """Of the packages, as the text states them; what it only mentions counts where nothing is stated.

    What something requires, what was asked of pip, and what was uninstalled is not what is installed.
    """
    mentioned = installed(MENTION, text)
    stated = [found for each in STATEMENT for found in installed(each, text)]
    every = [*mentioned, *stated, *HAVING.finditer(text)]
    known = {canonical(found["name"]): exact(found["version"]) for found in every}
    return {name: version for name, version in sorted(known.items()) if version}


def installed(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Where it is found in a line that is not about what is wanted, or gone."""
    wanting: dict[int, bool] = {}  # by where the line starts: a long one names many
    for found in pattern.finditer(text):
        start = text.rfind("\n", 0, found.start("name")) + 1
        if start not in wanting:
            end = text.find("\n", start)
            wanting[start] = WANTING.search(text, start, end if end >= 0 else len(text)) is not None
        if not wanting[start]:
            yield found


def canonical(name: str) -> str:
    return "torch" if name.lower() == "pytorch" else name.lower()


def exact(version: str) -> str:
    """Without the punctuation that follows it; empty if it is none."""
    try:
        return str(Version(version.rstrip(".!+_")))
    except InvalidVersion:
        return ""
