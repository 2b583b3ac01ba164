"""Diagnoses a failure by matching it with the signatures. Reads stored evidence only.

The options, versions, phase and checks of a measured cell are known; a pasted log often has its text only. A known fact
that contradicts a signature excludes it; of the remaining ones, the most confirmed comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Final

from packaging.version import InvalidVersion, Version

from cases.space.verdict import RED
from cases.space.written_values import parsed
from reports.answers.diagnosis import outside, signatures
from reports.answers.diagnosis.blame import may_be_blamed
from reports.answers.diagnosis.symptoms import Symptom
from reports.results.wording import gist

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import Outcome, Scalar
    from matrix.run.plan import Term
    from reports.answers.diagnosis.signatures import Signature
    from reports.results.grid import Grid

UNEXPLAINED: Final = "unexplained"
MATCHES: Final = 50  # per row and text; more matches add no information


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A signature that fits, the line that shows it, and its confirmed and open conditions."""

    signature: Signature
    line: str
    confirmed: tuple[str, ...]
    open: tuple[str, ...]
    matched: int
    lines: frozenset[str]

    @property
    def assumed(self) -> tuple[str, ...]:
        """Options that the signature requires and the log does not state."""
        return tuple(word for word in self.signature.when.split() if word in self.open)

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """The sort key: fewest assumed options, then most confirmed conditions, longest match, fewest open conditions.

        Assumed options come first, so that a rare cause does not win only because its versions fit too.
        """
        return -len(self.assumed), len(self.confirmed), self.matched, -len(self.open)


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Red cells with the same signature, or unexplained ones with the same message."""

    signature: Signature | None
    gist: str
    cells: tuple[Outcome, ...]

    @property
    def title(self) -> str:
        """The signature's id, or the message of unexplained cells."""
        return self.signature.id if self.signature else f"{UNEXPLAINED}: {self.gist}"


def symptom(outcome: Outcome, pins: Mapping[str, str]) -> Symptom:
    """Return the symptom of a measured cell: its error, or its failed checks if it ran to its end."""
    error = outcome.error
    parts = (f"{error.type}: {error.message}", outcome.reason, error.traceback) if error else (outcome.reason,)
    return Symptom(
        text="\n".join(part for part in parts if part),
        missed=() if error else tuple(check.name for check in outcome.checks if not check.ok),
        case=outcome.case,
        options=outcome.options,
        phase=outcome.phase,
        versions=pins,
        device=outcome.hardware.partition(":")[0],
    )


def is_ours(outcome: Outcome, pins: Mapping[str, str]) -> bool:
    """Tell if only a since-repaired bug of the harness made the outcome red."""
    if outcome.verdict not in RED:
        return False
    shown = symptom(outcome, pins)
    return any(match_signature(row, shown) and {*shown.missed} <= {*row.checks} for row in signatures.ours())


def diagnose(failure: Symptom, rows: Sequence[Signature] | None = None) -> tuple[Diagnosis, ...]:
    """Return the diagnoses that fit, best first; empty if the failure is unexplained or ended outside the stack.

    One line has one explanation, unless two rows fit it equally well.
    """
    if outside.end(failure) is not None:
        return ()
    matches = (match_signature(row, failure) for row in (signatures.load() if rows is None else rows))
    ordered = sorted((each for each in matches if each is not None), key=lambda each: each.rank, reverse=True)
    return tuple(without_explained_lines(ordered))


def narrower(broad: Diagnosis, failure: Symptom, rows: Sequence[Signature] | None = None) -> tuple[Diagnosis, ...]:
    """Return more specific diagnoses of the line of ``broad``, which assume options that the log does not state."""
    matches = (
        match_signature(row, failure) for row in (signatures.load() if rows is None else rows) if row != broad.signature
    )
    alike = [each for each in matches if each is not None and each.assumed and broad.line in each.lines]
    return tuple(sorted(alike, key=lambda each: each.rank, reverse=True))


def without_explained_lines(ordered: Iterable[Diagnosis]) -> Iterator[Diagnosis]:
    """Yield diagnoses of lines that no better diagnosis explains."""
    explained: dict[str, tuple[int, int, int, int]] = {}
    for each in ordered:
        if any(explained.get(line, each.rank) == each.rank for line in each.lines):
            yield each
        for line in each.lines:
            explained.setdefault(line, each.rank)


def match_signature(row: Signature, failure: Symptom) -> Diagnosis | None:
    """Return the diagnosis by one signature; None if it does not fit."""
    shown = evidence(row, failure)
    if shown is None:
        return None
    holds_by_condition = dict(conditions(row, failure))
    if False in holds_by_condition.values():
        return None
    line, matched, lines = shown
    return Diagnosis(
        signature=row,
        line=line,
        confirmed=tuple(words for words, holds in holds_by_condition.items() if holds),
        open=tuple(words for words, holds in holds_by_condition.items() if holds is None),
        matched=matched,
        lines=lines,
    )


def evidence(row: Signature, failure: Symptom) -> tuple[str, int, frozenset[str]] | None:
    """Return the line that shows a signature, the length of the match, and all matching lines."""
    # Most rows have no anchor in the text, and taking prefixes from its lines costs more than searching all of it.
    if row.pattern and any(each in failure.marked and each in failure.bare for each in row.anchors):
        match_by_line = dict(islice(matches(row, failure), MATCHES))
        if match_by_line:
            lines = [failure.lines[number].strip() for number in match_by_line]
            first = next((line for line in lines if not line.startswith("raise ")), lines[0])
            return first, max(map(len, match_by_line.values())), frozenset(lines)
    missed = [name for name in row.checks if name in failure.missed]
    if missed:
        return ", ".join(missed), len("".join(missed)), frozenset({"missed checks"})
    return None


def matches(row: Signature, failure: Symptom) -> Iterator[tuple[int, str]]:
    """Yield the numbers and matches of the lines that may be the cause."""
    for match in row.regex.finditer(failure.bare):
        number = failure.bare.count("\n", 0, match.start())
        if (
            failure.log_failures.may_be_cause(number)
            and belongs(row, failure, number)
            and may_be_blamed(row, failure, number)
        ):
            yield number, match[0]


def belongs(row: Signature, failure: Symptom, number: int) -> bool:
    """Tell if the context and the traceback of a line satisfy the signature."""
    if row.near and not row.near_regex.search(failure.near(number)):
        return False
    return (
        not row.through
        or not failure.log_failures.has_traceback(number)
        or row.through_regex.search(failure.near(number)) is not None
    )


def conditions(row: Signature, failure: Symptom) -> Iterator[tuple[str, bool | None]]:
    """Yield each condition in words, and if it holds; None means unknown."""
    if row.near:
        yield f"{row.near} is near it", True  # `belongs` has checked it
    if row.phases:
        yield f"in {' or '.join(row.phases)}", None if failure.phase is None else failure.phase in row.phases
    for word, term in zip(row.when.split(), row.terms, strict=True):
        yield word, None if failure.options is None else admits(term, failure.options, failure.case)
    if row.device:
        yield f"on {row.device}", failure.device == row.device if failure.device else None
    for name, specifier in row.specifiers.items():
        version = parse_version(failure.versions.get(name, ""))
        yield f"{name}{specifier}", None if version is None else specifier.contains(version, prereleases=True)


def admits(term: Term, options: Mapping[str, Scalar], case: str) -> bool:
    """Tell if a cell's stored options satisfy a term, like ``Term.admits``."""
    if term.name == "case":
        return term.negated != any(fnmatchcase(case, value) for value in term.values)
    wanted = [parsed(term.name, value) for value in term.values]
    return term.negated != (term.name in options and options[term.name] in wanted)


def parse_version(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None


def causes(matrix: Grid, rows: Sequence[Signature] | None = None) -> tuple[Cause, ...]:
    """Return the causes of all red cells, most frequent first; unexplained ones come last."""
    pins = {column.key: column.pins for column in matrix.sets}
    alike: dict[tuple[str, str], list[Outcome]] = {}
    known: dict[str, Signature] = {}
    for outcome in matrix.red:
        best = next(iter(diagnose(symptom(outcome, pins[outcome.set]), rows)), None)
        name = best.signature.id if best else ""
        if best:
            known[name] = best.signature
        alike.setdefault((name, "" if best else gist(outcome)), []).append(outcome)
    groups = (
        Cause(signature=known.get(name), gist=text or gist(cells[0]), cells=tuple(cells))
        for (name, text), cells in alike.items()
    )
    return tuple(sorted(groups, key=lambda each: (each.signature is None, -len(each.cells))))
