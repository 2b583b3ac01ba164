"""Draws ``bisections.md``: the recorded bisections, with their culprits and what they took."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.keys import CellKey
from reports.render.markdown import code, one_line, table
from reports.render.text.bisect_text import culprit_words, markdown_section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.bisect.answer import BisectAnswer

PAGE: Final = "bisections.md"
HEAD: Final = ("cell", "green on", "culprit", "cells run", "minutes")


def markdown(answers: Sequence[BisectAnswer]) -> str:
    """Return the page: a table, then each answer."""
    minutes = [each.seconds / 60.0 for each in answers]
    effort = f"median {statistics.median(minutes):.1f} minutes, at most {max(minutes):.1f}" if minutes else "none yet"
    rows = [
        (
            code(str(CellKey(each.bad, each.case))),
            code(each.good),
            one_line(culprit_words(each)),
            str(each.cells),
            f"{each.seconds / 60.0:.1f}",
        )
        for each in answers
    ]
    intro = (
        f"{counted(len(answers), 'bisection')} of cells that were green on one dated set and red on the next, "
        f"{effort}. Times are those of the machine at that moment, whatever else ran on it. "
        "`ftmatrix bisect CELL --good SET --record reports/published` adds one, and draws this page."
    )
    sections = [markdown_section(each, title=f"## {code(each.case)}") for each in answers]
    return "\n\n".join(["# Bisections", intro, table(HEAD, rows), *(each.strip() for each in sections)]) + "\n"
