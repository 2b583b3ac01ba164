"""The words, pages and version sets that the search box of the site knows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cases.space import options, renamed
from cases.space.options import Options
from matrix.versions.sets import PACKAGES
from reports.answers.support.fillers import FILLERS
from reports.answers.support.phrases import PHRASES
from reports.answers.support.requirements import ALIASES
from reports.answers.support.vocabulary import WORDS
from reports.site.diagnosis.javascript_patterns import pattern, replacement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reports.site.feature_pages import Feature
    from reports.site.problem_pages import ProblemPage
    from reports.site.published_data import PublishedData


def words_data() -> dict[str, Any]:
    """Return the vocabulary of queries, as `ftmatrix can-i-use` has it. Values are texts, as in case ids."""
    return {
        "words": {
            word: {name: list(map(text, values)) for name, values in each.items()} for word, each in WORDS.items()
        },
        "phrases": [[pattern(expression.pattern), replacement(words)] for expression, words in PHRASES],
        "fillers": sorted(FILLERS),
        "options": {name: list(map(text, options.values(name))) for name in options.names()},
        "defaults": {name: text(value) for name, value in asdict(Options()).items()},
        "renamed": renamed.OPTIONS,
        "packages": list(PACKAGES),
        "aliases": ALIASES,
    }


def text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_data(published: PublishedData) -> dict[str, Any]:
    """Return the options of every case in the order of the matrix, as numbers of values that cases share."""
    numbers: dict[str, int] = {}
    rows = []
    for case in published.cases:
        outcomes = published.rows_by_case.get(case, [])
        stated = outcomes[-1][1].options if outcomes else {}
        rows.append([numbers.setdefault(f"{name}={text(value)}", len(numbers)) for name, value in stated.items()])
    return {"values": list(numbers), "rows": rows, "why": [why(published, case) for case in published.cases]}


def why(published: PublishedData, case: str) -> str:
    return next((each.why for _, each in published.rows_by_case.get(case, []) if each.why), "")


def pages_data(features: Iterable[Feature], problems: Iterable[ProblemPage], causes: Iterable[Any]) -> dict[str, Any]:
    """Return the pages of features, findings, known problems and causes with the words to find them by."""
    return {
        "features": [
            {"file": each.file, "title": each.title, "options": each.stated, "status": each.status_words}
            for each in features
        ],
        "problems": [
            {"file": each.path, "title": each.title, "id": each.id, "kind": each.kind, "silent": each.silent}
            for each in problems
        ],
        "causes": [{"file": each.path, "id": each.id, "title": each.cause, "cells": each.cells} for each in causes],
    }
