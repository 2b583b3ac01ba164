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
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from packaging.version import InvalidVersion, Version

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGABYTE: Final = 1024 * 1024
BLOCK_SIZE: Final = 2 * MEGABYTE  # bytes per read
# `distinct_text` keeps this many bytes of distinct lines, then only lines about errors and the end of the log.
ALL_LINES_SIZE: Final = 4 * MEGABYTE
ERROR_LINES_SIZE: Final = 8 * MEGABYTE
ERROR_LINES_PER_BLOCK: Final = MEGABYTE // 8  # so that noise in one block leaves room for the next
END_SIZE: Final = MEGABYTE
LONGEST_LINE: Final = MEGABYTE // 16  # a longer line keeps both its ends
LINES_BEFORE, LINES_AFTER = 100, 5  # around a line about an error: its traceback precedes it
REMEMBERED_LINES: Final = 200_000  # hashes in memory, to recognise repeated lines
ERROR_WORDS: Final = (b"rror", b"xception", b"raceback", b"ssert", b"llegal", b"issing", b"ismatch", b" nan")
ELLIPSIS: Final = b" ... "
CONTROLS: Final = bytes({*range(32), 127} - set(b"\t\n\r\b\f\x1b"))
LARGEST_CONTROL_SHARE: Final = 0.05  # of the bytes of a text

STACK: Final = r"pytorch|torch|transformers|peft|bitsandbytes|accelerate|trl"
LIBRARIES: Final = r"(?:huggingface|hf)[ _-]hub|tokenizers|safetensors|datasets"  # which the map of the API has as well
NUMBER: Final = r"v?(?P<version>\d+(?:\.\d+)+[\w.+!]*)"
QUOTE: Final = r"[`'\"*]*"
NOT_INSTALLED: Final = (  # lines about required, requested or uninstalled packages
    r"\brequires\b|requirement|depends on|user requested|no matching distribution|\bcollecting\b|"
    r"\buninstall|existing installation|\b(?:pip3?|conda|mamba) install\b|\buv (?:pip install|add)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPatterns:
    """Patterns of texts that name versions: clear statements, mentions in sentences, and pip's complaints."""

    statements: tuple[re.Pattern[str], ...]
    mention: re.Pattern[str]
    incompatibility: re.Pattern[str]

    @classmethod
    def of(cls, packages: str) -> VersionPatterns:
        """Return the patterns for packages, whose names are alternatives of a regular expression."""
        names = rf"(?P<name>{packages})"
        stated = (
            rf"(?<![\w.-]){names}\s?===?\s?{NUMBER}",  # pip freeze
            rf"(?<![\w.-]){names}-{NUMBER}(?=\.dist-info|-(?:cp|py)\d|[\s,)]|$)",  # a folder, a wheel
            rf"(?<![\w.-]){names}{QUOTE}(?: version)?{QUOTE}(?: \([^)\n]*\))?{QUOTE} ?[:=] ?{QUOTE}{NUMBER}",  # env
            rf"^[ \t]*{names}[ \t]{{2,}}{NUMBER}(?=[ \t]*$|[ \t]{{2,}})",  # pip list
            rf"^[ \t]*Name: {names}\s+Version: {NUMBER}[ \t]*$",  # pip show
        )
        mentioned = rf"(?:^[\s*•>-]*|[,;(|]\s*){names}(?: version)? {NUMBER}(?=\s*(?:[,;)|]|$))"
        return cls(
            statements=tuple(re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in stated),
            mention=re.compile(mentioned, re.IGNORECASE | re.MULTILINE),
            incompatibility=re.compile(rf"\byou(?:'ll)? have {names} {NUMBER}", re.IGNORECASE),
        )


STACK_VERSIONS: Final = VersionPatterns.of(STACK)
STATEMENT: Final = STACK_VERSIONS.statements
MENTION: Final = STACK_VERSIONS.mention
INCOMPATIBILITY: Final = STACK_VERSIONS.incompatibility
STATES_VERSION: Final = b"Version: "  # of the package in the line before, in the output of `pip show`
NOT_INSTALLED_LINE: Final = re.compile(NOT_INSTALLED, re.IGNORECASE)


def read(path: Path | None) -> str:
    """Return the distinct lines of a file, or of standard input.

    Raises:
        UserError: the log cannot be read, is empty, or is not text.
    """
    name = "standard input" if path is None else str(path)
    try:
        with open_log(path) as stream:
            text = distinct_text(stream, name)
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror}); give the log as a file, or pipe it in") from None
    if not text.strip():
        raise UserError(f"{name}: is empty; give the traceback, or better the whole log")
    return text


@contextmanager
def open_log(path: Path | None) -> Iterator[IO[bytes]]:
    if path is not None:
        with path.open("rb") as stream:
            yield stream
    elif sys.stdin is None or sys.stdin.isatty():
        raise UserError(
            "standard input is a terminal: name the log's file, or pipe it in, as in `... | ftmatrix explain`"
        )
    else:
        yield sys.stdin.buffer


def distinct_text(stream: IO[bytes], name: str) -> str:
    """Return each line once, ignoring digits. A very long text keeps only lines about errors, and its end.

    Raises:
        UserError: the stream is not text.
    """
    parts: list[bytes] = []
    end = b""
    room, error_room = ALL_LINES_SIZE, ERROR_LINES_SIZE
    for lines in filter(None, new_lines(blocks(stream, name))):
        text = b"\n".join(lines)
        if room > 0:
            parts.append(text)
            room -= len(text)
            continue
        end = (end + b"\n" + text)[-END_SIZE:]
        if error_room > 0:
            errors = b"\n".join(error_lines(lines, text))[:ERROR_LINES_PER_BLOCK]
            parts.append(errors)
            error_room -= len(errors)
    return b"\n".join([*parts, end] if end else parts).decode("utf-8", "replace")


def blocks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the text as UTF-8, cut between lines, without the line breaks at the cuts.

    Raises:
        UserError: the first block is not text.
    """
    rest = b""
    first = stream.read(BLOCK_SIZE)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell writes UTF-16
        recoded = codecs.EncodedFile(PushedBack(first, stream), "utf-8", "utf-16", "replace")
        first, stream = recoded.read(BLOCK_SIZE), recoded
    if is_garbage(first[:MEGABYTE]):
        raise UserError(f"{name}: is binary, not a log; give its text (decompress an archive first)")
    while first:
        block = (rest + first).replace(b"\r", b"\n")
        cut = block.rfind(b"\n") + 1 or len(block)
        yield block[:cut].removesuffix(b"\n")
        rest, first = block[cut:], stream.read(BLOCK_SIZE)
    if rest:
        yield rest


class PushedBack(io.RawIOBase):
    """A stream that returns a block which was already read, and then the rest."""

    def __init__(self, first: bytes, stream: IO[bytes]) -> None:
        super().__init__()
        self.first, self.stream = first, stream

    def read(self, size: int = -1) -> bytes:
        part, self.first = self.first, b""
        return part or self.stream.read(size)


def is_garbage(head: bytes) -> bool:
    """Tell if bytes are binary: text has almost no control characters, random bytes have a tenth."""
    return len(head) - len(head.translate(None, CONTROLS)) > LARGEST_CONTROL_SHARE * len(head)


def new_lines(blocks: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield, block by block, the lines that are new, and each version that `pip show` states."""
    seen: set[int] = set()
    for block in blocks:
        keys = map(hash, block.translate(None, b"0123456789").split(b"\n"))
        lines: list[bytes] = []
        for line, key in zip(block.split(b"\n"), keys, strict=True):
            if key not in seen or line.startswith(STATES_VERSION):
                seen.add(key)
                lines.append(
                    line
                    if len(line) <= LONGEST_LINE
                    else line[: LONGEST_LINE // 2] + ELLIPSIS + line[-LONGEST_LINE // 2 :]
                )
        if len(seen) > REMEMBERED_LINES:
            seen.clear()
        yield lines


def error_lines(lines: list[bytes], text: bytes) -> Iterator[bytes]:
    """Yield the lines about errors, each with the lines before it, which hold its traceback."""
    if not any(word in text for word in ERROR_WORDS):
        return
    end = 0  # of the lines that are already yielded
    for number, line in enumerate(lines):
        if any(word in line for word in ERROR_WORDS):
            yield from lines[max(end, number - LINES_BEFORE) : number + LINES_AFTER]
            end = max(end, number + LINES_AFTER)


def versions(text: str, patterns: VersionPatterns = STACK_VERSIONS) -> dict[str, str]:
    """Return the installed versions that a text names, by package; those of the stack without other ``patterns``.

    A clear statement, such as a line of ``pip list``, goes before a mention in a sentence. Lines about requirements,
    requests to pip and uninstalled packages do not count.
    """
    mentioned = installed_versions(patterns.mention, text)
    stated = [match for each in patterns.statements for match in installed_versions(each, text)]
    every = [*mentioned, *stated, *patterns.incompatibility.finditer(text)]
    known = {canonical_name(match["name"]): exact_version(match["version"]) for match in every}
    return {name: version for name, version in sorted(known.items()) if version}


def library_versions(text: str) -> dict[str, str]:
    """Return the installed versions of libraries below the stack that a text names, such as tokenizers."""
    return versions(text, VersionPatterns.of(LIBRARIES))


def installed_versions(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches in lines that are not about required, requested or uninstalled packages."""
    skipped: dict[int, bool] = {}  # by the start of the line; a long line may name many packages
    for match in pattern.finditer(text):
        start = text.rfind("\n", 0, match.start("name")) + 1
        if start not in skipped:
            end = text.find("\n", start)
            skipped[start] = NOT_INSTALLED_LINE.search(text, start, end if end >= 0 else len(text)) is not None
        if not skipped[start]:
            yield match


def canonical_name(name: str) -> str:
    plain = re.sub("[ -]", "_", name.lower())
    return {"pytorch": "torch", "hf_hub": "huggingface_hub"}.get(plain, plain)


def exact_version(version: str) -> str:
    """Return a version without the punctuation after it, or an empty string if the text is no version."""
    try:
        return str(Version(version.rstrip(".!+_")))
    except InvalidVersion:
        return ""
