"""Draws ``gpu_matrix.md``: the default profile on GPUs, on the dated sets that ran there from their own lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from cases.space.verdict import RED
from reports.render.markdown import code, keys, legend, signs, table, text
from reports.results.verdict_style import LOOKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.answers.devices.own_locks import OwnLock
    from reports.results.grid import Grid

HEAD: Final = ("set", "torch", "GPUs", "driver", "CUDA", "NCCL", "measured", "case code")
COUNTS: Final = ("cells", "red", "explained", "answered")
TERMS: Final = (
    "`explained`: red cells with a known cause. `answered`: red cells with a fix that runs verified, or for which a "
    "search found none within its budget. `case code` is the digest of all case code that took part. Drivers are "
    "not recorded of early runs."
)


def gpu_page(matrix: Grid, columns: Sequence[OwnLock]) -> str:
    """Return the page as Markdown."""
    sections = [
        "# The default profile on GPUs",
        introduction(matrix, columns),
        "## What each column rests on",
        table((*HEAD, *COUNTS), [row(each) for each in columns]),
        TERMS,
        "## Matrix",
        legend(each for each in LOOKS if any(verdict is each for verdict in matrix.verdicts.values())),
        *(f"### {text(group.name)}\n\n{signs(matrix, group.cases, keys(matrix))}" for group in matrix.groups),
    ]
    return "\n\n".join(sections) + "\n"


def introduction(matrix: Grid, columns: Sequence[OwnLock]) -> str:
    red = sum(verdict in RED for verdict in matrix.verdicts.values())
    explained = sum(each.explained for each in columns)
    sets, cells = counted(len(matrix.sets), "dated set"), counted(len(matrix.verdicts), "cell")
    return (
        f"{sets}, each installed from its own lock: {cells}, of which {red} are red; {explained} of these have a known "
        "cause. [CPU and GPU](devices.md) lists each cell in which the [CPU results](matrix.md) of these sets differ."
    )


def row(column: OwnLock) -> tuple[str, ...]:
    return (
        code(column.record.key),
        text(column.record.pins.get("torch", "")),
        text(", ".join(column.hardware)),
        text(", ".join(column.drivers)),
        text(", ".join(column.cuda)),
        text(", ".join(column.nccl)),
        " to ".join(dict.fromkeys(column.days)),
        code(column.code) if column.code else "",
        *(str(number) for number in (column.cells, column.red, column.explained, column.answered)),
    )
