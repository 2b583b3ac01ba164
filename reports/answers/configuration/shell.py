"""Splits the text of a shell script into commands, with the variables that the script itself sets."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

LAUNCHES: Final = re.compile(
    r"\b(accelerate[ -]launch|accelerate\.commands\.launch|torchrun|torch\.distributed\.(run|launch)"
    r"|deepspeed\s+\S|llamafactory-cli|axolotl\s+[a-z]|trl\s+[a-z]+|python3?\s+\S)"
)
SEPARATORS: Final = frozenset(";|&")
ASSIGNMENT: Final = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
ARRAY: Final = re.compile(r"^\s*(?:export\s+|local\s+|declare\s+-a\s+)?([A-Za-z_]\w*)\+?=\(")
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=]([^}]*))?\}|\$([A-Za-z_]\w*)")
APOSTROPHE: Final = re.compile(r"\w'\w")
SUBSTITUTION: Final = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`")
QUOTED_LIST: Final = re.compile(r'"(\$\{\w+\[@\]\})"')
REDIRECTION: Final = re.compile(r"(?<!\S)(?:\d|&)?(?:>>|>|<)(?:&\d|\s*[^\s;|&<>]+)")
KEYWORDS: Final = ("export", "local", "readonly", "declare", "env", "then", "do", "else", "if", "time", "exec", "nohup")


@dataclass(frozen=True, kw_only=True)
class ShellCommand:
    """A command with the variables that stand before it, and the line where it starts."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    line: int


def commands(text: str, path: Path) -> Iterator[ShellCommand]:
    """Yield the commands of a script, with the values of variables that the script sets.

    Raises:
        UserError: a quote is not closed.
    """
    known: dict[str, str] = {}
    for line, raw in logical_lines(text, path):
        array = ARRAY.match(raw)
        if array:
            known[array[1]] = " ".join(raw[array.end() :].rstrip().removesuffix(")").split())
            continue
        for words in simple_commands(expand(raw, known)):
            yield from run(words, known, line, path)


def run(words: list[str], known: dict[str, str], line: int, path: Path) -> Iterator[ShellCommand]:
    """Apply the assignments of a command, and yield the command if it is more than assignments."""
    own: dict[str, str] = {}
    rest = list(words)
    while rest and (rest[0] in KEYWORDS or ASSIGNMENT.match(rest[0])):
        found = ASSIGNMENT.match(rest.pop(0))
        if found:
            own[found[1]] = found[2]
    if not rest or words[0] == "export":
        known.update(own)
        return
    yield ShellCommand(words=tuple(rest), variables={**known, **own}, line=line)
    for number, word in enumerate(rest[:-1]):
        if word in ("-c", "-lc") and " " in rest[number + 1]:  # bash -c "..."
            yield from (
                ShellCommand(words=each.words, variables={**known, **own, **each.variables}, line=line)
                for each in commands(rest[number + 1], path)
            )


def logical_lines(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line with its continuations, and the number of its first line."""
    lines = text.splitlines()
    start = 0
    while start < len(lines):
        joined, end = joined_line(lines, start)
        if not is_complete(lines[start]) and APOSTROPHE.search(lines[start]) and not LAUNCHES.search(lines[start]):
            end = start + 1  # prose
        elif is_complete(joined):
            yield start + 1, joined
        elif LAUNCHES.search(lines[start]):
            raise UserError(f"{path}:{start + 1}: a quote is not closed; give the whole command")
        else:
            end = start + 1
        start = end


def joined_line(lines: Sequence[str], start: int) -> tuple[str, int]:
    """Return a line with its continuations and open quotes, and the index of the line behind it."""
    buffer = ""
    for number in range(start, len(lines)):
        raw = lines[number]
        if buffer and raw.lstrip().startswith("#"):
            continue  # a comment between the lines of a command, which the shell would end there
        buffer += raw
        if buffer.rstrip().endswith("\\") and not buffer.rstrip().endswith("\\\\"):
            buffer = f"{buffer.rstrip()[:-1]} "
        elif is_complete(buffer):
            return buffer, number + 1
        else:
            buffer += "\n"
    return buffer, len(lines)


def is_complete(text: str) -> bool:
    """Tell if all quotes and the brackets of a list are closed."""
    try:
        tokens(without_comment(text))
    except ValueError:
        return False
    return not ARRAY.match(text) or text.rstrip().endswith(")")


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replace the variables that a script sets. Others keep their names, and the output of commands is unknown."""

    def value(found: re.Match[str]) -> str:
        default = found[2] if found[2] is not None else found[0]
        return known.get(found[1] or found[3], default)

    return VARIABLE.sub(value, QUOTED_LIST.sub(r"\1", SUBSTITUTION.sub("$OUTPUT", text)))


def tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, without redirections and comments."""
    words: list[str] = []
    for token in tokens(REDIRECTION.sub(" ", without_comment(text))):
        if token and set(token) <= SEPARATORS:
            if words:
                yield words
            words = []
        else:
            words.append(token)
    if words:
        yield words


def without_comment(text: str) -> str:
    """Return a line without its comment: a # at the start of a word and outside of quotes."""
    quote = ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (index == 0 or text[index - 1].isspace()):
            return text[:index]
    return text
