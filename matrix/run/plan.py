"""Selects cases by ``--where``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

from cases.space import options
from cases.space.plural import counted
from cases.space.renamed import WORDS, current_option
from cases.space.written_values import parsed
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cases.space.case import Case

TERM = re.compile(r"(?P<name>[a-z_0-9]+)(?P<op>!?=)(?P<value>.+)")
FREE = ("case", "group")  # matched as patterns, with * and ?
Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """``name=value`` or ``name!=value``; the values of ``name=a,b`` are alternatives."""

    name: str
    values: tuple[str, ...]
    negated: bool

    def __str__(self) -> str:
        return f"{self.name}{'!=' if self.negated else '='}{','.join(self.values)}"

    def admits(self, case: Case) -> bool:
        return self.negated != any(self.matches(case, value) for value in self.values)

    def matches(self, case: Case, value: str) -> bool:
        if self.name == "case":
            return fnmatchcase(case.id, value) or fnmatchcase(case.id, current_pattern(value))
        if self.name == "group":
            return fnmatchcase(case.group.lower(), value.lower())
        stated = case.options.stated
        return self.name in stated and stated[self.name] == parsed(self.name, value)


def current_pattern(pattern: str) -> str:
    """A pattern of case ids in which former words are replaced by the present ones."""
    return re.sub(r"[a-z0-9_]+", lambda word: WORDS.get(word[0], word[0]), pattern)


def where(text: str) -> tuple[Term, ...]:
    """Read ``--where``, e.g. ``quant=nf4 strategy=fsdp1,fsdp2 loop!=eval case=*-dora-*``.

    Raises:
        UserError: a term is malformed, or names an option or a value that does not exist.
    """
    return tuple(term(word) for word in text.split())


def term(word: str) -> Term:
    match = TERM.fullmatch(word)
    if match is None:
        raise UserError(f"--where: {word!r} is not of the form option=value, such as quant=nf4")
    try:
        name, values = current_term(match["name"], match["value"].split(","))
    except UserError as error:
        raise UserError(f"--where: {error}") from None
    if name not in FREE:
        try:
            for value in values:
                parsed(name, value)
        except options.IllegalError as error:
            raise UserError(f"--where: {error}{near(name)}") from None
    return Term(name=name, values=values, negated=match["op"] == "!=")


def renamings(text: str) -> tuple[str, ...]:
    """A sentence for each term of ``--where`` that uses a former name, with the present one."""
    terms = ((word, term(word)) for word in text.split())
    return tuple(f"--where {renaming(word, each)}" for word, each in terms if not word.startswith(each.name))


def renaming(word: str, present: Term) -> str:
    """The sentence about one term, ``word``, that uses a former name."""
    return f"{word}: the option is {present.name} now ({present})"


def current_term(name: str, values: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The present name and values of a term that may use former ones.

    Raises:
        UserError: the former option was split, and the values belong to different options now.
    """
    renamed = [current_option(name, value) for value in values]
    names = {each for each, _ in renamed}
    if len(names) > 1:
        raise UserError(f"{name} was split into {' and '.join(sorted(names))}; use one of them")
    return names.pop(), tuple(str(value) for _, value in renamed)


def near(name: str) -> str:
    known = (*options.names(), *FREE)
    close = () if name in known else get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def select(cases: Mapping[str, Case], terms: Iterable[Term], *, text: str) -> tuple[Case, ...]:
    """The cases that every term admits. ``text`` is the whole ``--where``, for the error message.

    Raises:
        UserError: no case is left.
    """
    required = tuple(terms)
    selected = tuple(case for case in cases.values() if all(term.admits(case) for term in required))
    if not selected:
        raise UserError(
            f"--where {text!r} matches none of {counted(len(cases), 'case')}; `ftmatrix plan` lists the options"
        )
    return selected


def spread(things: Sequence[Thing], count: int) -> tuple[Thing, ...]:
    """``count`` of the things, evenly spaced, so that each kind keeps its share; all of them if there are fewer."""
    few = min(count, len(things))
    return tuple(things[number * len(things) // few] for number in range(few))
