"""Judges version sets as candidates: the status of each for all queries, and for what the queries imply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from matrix.keys import CellKey
from reports.answers.support.status import QueryStatus, SupportIndex, SupportStatus, newest_first
from reports.answers.support.whole_job import facts_of, implied
from reports.results.wording import headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cases.space.options import Value
    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.judgement.known_errors import KnownError
    from reports.answers.support.query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A version set with its status for each query, and for what the queries imply."""

    column: SetRecord
    statuses: tuple[QueryStatus, ...]
    outcomes: tuple[Outcome, ...]  # of the cells that show it
    implied: tuple[QueryStatus, ...] = ()  # of what follows training; unknown ones do not count
    errors: tuple[KnownError, ...] = ()  # that the job meets on this set, beside the red cells

    @property
    def key(self) -> str:
        return self.column.key

    @property
    def fulfils(self) -> bool:
        return all(each.good for each in self.statuses) and not self.is_red_later

    @property
    def without_settings(self) -> bool:
        later = (each for each in self.implied if each.status is not SupportStatus.UNKNOWN)
        return all(each.status is SupportStatus.GREEN for each in (*self.statuses, *later))

    @property
    def is_red_later(self) -> bool:
        """True if what follows training is red, or if an error of these versions spoils it."""
        return bool(self.errors) or any(each.status is SupportStatus.RED for each in self.implied)

    @property
    def status(self) -> SupportStatus:
        """The worst status of all queries; red comes before unknown, because one failure is enough."""
        if self.fulfils:
            return SupportStatus.GREEN if self.without_settings else SupportStatus.SETTING
        good = all(each.good for each in self.statuses)  # then something later is red
        red = good or any(each.status is SupportStatus.RED for each in (*self.statuses, *self.implied))
        return SupportStatus.RED if red else SupportStatus.UNKNOWN

    @property
    def unmet(self) -> tuple[QueryStatus, ...]:
        later = (each for each in self.implied if each.status is SupportStatus.RED)
        return (*(each for each in self.statuses if not each.good), *later)

    @property
    def settings(self) -> str:
        """The settings that the queries need on this set."""
        every = (*self.statuses, *self.implied)
        settings = dict.fromkeys(each.greens[0].words for each in every if each.status is SupportStatus.SETTING)
        return "; ".join(settings)

    @property
    def hardware(self) -> str:
        return "; ".join(dict.fromkeys(outcome.hardware for outcome in self.outcomes))

    @property
    def measured(self) -> str:
        """The day, or the first and the last."""
        days = sorted({f"{outcome.started:%Y-%m-%d}" for outcome in self.outcomes})
        return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""

    def as_json(self) -> dict[str, Any]:
        return {
            "set": self.key,
            "as_of": self.column.as_of,
            "python": self.column.python,
            "pins": self.column.pins,
            "lock": self.column.lock,
            "as_it_is": self.without_settings,
            "settings": self.settings,
            "needs": [query_status_json(each) for each in self.statuses],
            "implied": [query_status_json(each) for each in self.implied],
            "errors": [each.finding.id for each in self.errors],
            "cells": [
                {"cell": each.cell, "hardware": each.hardware, "date": f"{each.started:%Y-%m-%d}"}
                for each in self.outcomes
            ],
        }


def query_status_json(query_status: QueryStatus) -> dict[str, Any]:
    return {
        "need": query_status.query.text,
        "terms": query_status.query.terms,
        "standing": query_status.status.value,
        "settings": dict(query_status.greens[0].settings) if query_status.good else {},
        "cells": [str(CellKey(query_status.set, case)) for case in query_status.proof],
        "avoid": [str(CellKey(query_status.set, case)) for case in query_status.avoid] if query_status.good else [],
        "reason": query_status.reason,
    }


def unmet_json(candidate: Candidate) -> list[dict[str, Any]]:
    """Return the queries that a set does not fulfil, with their red cells."""
    stated_outcomes = {outcome.case: outcome for outcome in candidate.outcomes}
    return [
        {
            "set": candidate.key,
            "need": query_status.query.text,
            "standing": query_status.status.value,
            "reason": query_status.reason,
            "cells": [
                {
                    "cell": str(CellKey(query_status.set, case)),
                    "verdict": stated_outcomes[case].verdict.value,
                    "why": headline(stated_outcomes[case]),
                }
                for case in query_status.proof
            ],
        }
        for query_status in candidate.unmet
    ]


def candidates(index: SupportIndex, queries: Sequence[Query]) -> list[Candidate]:
    """Return every set as a candidate, newest first.

    Raises:
        UserError: no legal case can match a query.
    """
    following = {each.terms: each for query in queries for each in implied(query)}.values()
    stated, later = ([by_set(index, query) for query in each] for each in (queries, following))
    return [
        with_errors(
            candidate(index, column, [each[column.key] for each in stated], [each[column.key] for each in later]),
            index,
            queries,
        )
        for column in newest_first(index.sets)
    ]


def by_set(index: SupportIndex, query: Query) -> dict[str, QueryStatus]:
    return {each.set: each for each in index.statuses(query)}


def candidate(
    index: SupportIndex, column: SetRecord, statuses: Sequence[QueryStatus], later: Sequence[QueryStatus]
) -> Candidate:
    chosen: dict[str, Value] = dict(kv for each in statuses if each.good for kv in each.greens[0].settings.items())
    following = []
    for each in later:
        following.append(with_settings(each, chosen))
        if following[-1].good:
            chosen |= following[-1].greens[0].settings
    outcomes = proofs(index, column, (*statuses, *following))
    return Candidate(column=column, statuses=tuple(statuses), outcomes=outcomes, implied=tuple(following))


def proofs(index: SupportIndex, column: SetRecord, statuses: Iterable[QueryStatus]) -> tuple[Outcome, ...]:
    cases = dict.fromkeys(case for each in statuses for case in each.proof)
    return tuple(index.outcome(case, column.key) for case in cases)


def with_settings(later: QueryStatus, chosen: Mapping[str, Value]) -> QueryStatus:
    """Return the status of what follows training for a job with the settings that it has already.

    Cases that contradict these settings are not green for the job, and cases with settings that it lacks are not red.
    """
    if later.status is SupportStatus.RED and not later.avoid:
        return replace(later, status=SupportStatus.UNKNOWN, reds=(), reason="red with settings that were not asked for")
    greens = tuple(each for each in later.greens if not contradicts(each.settings, chosen))
    if greens == later.greens:
        return later
    status = SupportStatus.RED if later.avoid else SupportStatus.UNKNOWN
    if greens:
        status = SupportStatus.SETTING if greens[0].settings else SupportStatus.GREEN
    reason = "" if status is not SupportStatus.UNKNOWN else "measured with other settings only"
    return replace(later, status=status, greens=greens, reds=later.avoid, reason=reason)


def contradicts(settings: Mapping[str, Value], chosen: Mapping[str, Value]) -> bool:
    return any(name in chosen and chosen[name] != value for name, value in settings.items())


def with_errors(candidate: Candidate, index: SupportIndex, queries: Sequence[Query]) -> Candidate:
    """Add the known errors that the job meets on a set and that none of its red cells shows already.

    Green cases whose settings bring such an error are left out if another one brings none.
    """
    known = index.known
    if known is None:
        return candidate
    every = (*candidate.statuses, *candidate.implied)
    shown = {case for each in every for case in (*each.proof, *each.avoid)}
    later = {name: value for each in candidate.implied if each.good for name, value in each.greens[0].settings.items()}

    def met(settings: Mapping[str, Value]) -> dict[str, KnownError]:
        return {
            each.finding.id: each
            for query in queries
            for each in known.met_by(facts_of(query, settings, device=index.device), candidate.column.pins)
            if each.certain and each.is_failure and shown.isdisjoint(cells.case for cells in each.finding.red)
        }

    statuses = tuple(
        replace(
            each, greens=tuple(green for green in each.greens if not met({**green.settings, **later})) or each.greens
        )
        for each in candidate.statuses
    )
    chosen = {name: value for each in statuses if each.good for name, value in each.greens[0].settings.items()}
    return replace(
        candidate,
        statuses=statuses,
        outcomes=proofs(index, candidate.column, (*statuses, *candidate.implied)),
        errors=tuple(met({**chosen, **later}).values()),
    )
