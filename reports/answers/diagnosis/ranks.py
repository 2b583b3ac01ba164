"""Sorts the interleaved lines of several ranks, so that each rank's traceback is in one piece."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# `[rank1]:` of torch, `[default1]:` and `[trainer1|1]:` of torchrun, `[1,2]<stderr>:` of MPI, `(Actor pid=7)` of Ray.
RANK: Final = re.compile(
    r"^[ \t]*(?:\[?\b(?:rank ?|default|trainer|local_rank ?)(?P<rank>\d+)(?:\|\d+)?\]?:"
    r"|\[\d+,(?P<mpi>\d+)\]<std(?:err|out)>:|\([^()\n]*\bpid=(?P<pid>\d+)[^()\n]*\))",
    re.IGNORECASE,
)
GAP: Final = 8  # lines without a rank inside the output of several ranks; a longer gap ends it


def rank_of(line: str) -> str:
    """Return the rank that a line names; an empty string if it names none."""
    match = RANK.match(line)
    return next((each for each in match.groups() if each is not None), "") if match else ""


def sorted_by_rank(ranks: Sequence[str]) -> list[int]:
    """Return the numbers of the lines in an order that keeps the lines of each rank together.

    Only blocks in which several ranks write are reordered. The rank that writes first comes first; lines of no rank
    precede the block that they interrupt.
    """
    order: list[int] = []
    for block in blocks(ranks):
        present = dict.fromkeys(ranks[number] for number in block)
        if len(present.keys() - {""}) > 1:
            place = {rank: place for place, rank in enumerate(["", *(rank for rank in present if rank)])}
            order.extend(sorted(block, key=lambda number, place=place: place[ranks[number]]))  # type: ignore[misc]
        else:
            order.extend(block)
    return order


def blocks(ranks: Sequence[str]) -> Iterator[range]:
    """Yield ranges of lines that together cover all lines, cut before a long gap in the output of ranks."""
    start = last = 0
    for number, rank in enumerate(ranks):
        if rank:
            if number - last > GAP:
                yield range(start, number)
                start = number
            last = number
    tail = min(len(ranks), last + 1)
    yield range(start, tail)
    if tail < len(ranks):
        yield range(tail, len(ranks))
