"""Draws what the map of the API says of releases that a user combines."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from reports.answers.pairs.pair_answers import READ

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reports.answers.pairs.kept_versions import KeptVersions
    from reports.answers.pairs.pair_answers import PairAnswer

WIDTH: Final = 110
FIRST_REFUSED: Final = 3


def pair_lines(pairs: Sequence[PairAnswer]) -> Iterator[str]:
    """Yield the answer for each pair of releases, with its proof."""
    for each in pairs:
        names = " with ".join(f"{name} {version}" for name, version in each.versions.items())
        because = f": {each.because}" if each.because else ""
        yield from wrapped(f"{names}: {each.status.value}{because}  [{each.proof}]", "  ")
        yield from (line for text in each.unmet for line in wrapped(f"requirement not met: {text}", "    "))


def kept_lines(kept: KeptVersions | None) -> Iterator[str]:
    """Yield which green sets still import with the versions that a user keeps."""
    if kept is None:
        return
    if kept.broken:
        yield "The given versions do not work together:"
        yield from pair_lines(kept.broken)
        return
    given = ", ".join(f"{name}=={version}" for name, version in kept.versions.items())
    if kept.best is not None:
        pins = " ".join(f"{name}=={version}" for name, version in kept.best.versions.items())
        yield f"No cell measured {given} with {kept.best.set}; nothing is missing at import  [{READ}]:"
        yield f"  {pins}"
    for each in kept.refused[:FIRST_REFUSED]:
        yield f"Not recommended: {each.set} with {given}"
        yield from (line for reason in each.reasons for line in wrapped(reason, "  "))
    if len(kept.refused) > FIRST_REFUSED:
        yield f"Nor {', '.join(each.set for each in kept.refused[FIRST_REFUSED:])}; --json gives the reasons"


def wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
