"""Draws an explanation as text for a terminal: the cause, the proven fixes with their proof, unverified advice."""

from __future__ import annotations

import textwrap
from itertools import islice
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from reports.answers.diagnosis.diagnose import UNEXPLAINED
from reports.results.known_results import AdviceResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reports.answers.diagnosis.explain import Explanation
    from reports.answers.fixes.proven import ProvenFix

WIDTH: Final = 110
FIXES: Final = 4  # of a cause; --json has all
CELLS: Final = 2
LINKS: Final = 5
NARROWER: Final = 3  # more specific causes
OTHERS: Final = 3  # further causes
HARDWARE: Final = {"cpu": "on CPU (gloo), not on GPUs", "cuda": "on GPUs (NCCL)"}


def lines(explanations: Sequence[Explanation], versions: Mapping[str, str]) -> Iterator[str]:
    if not explanations:
        yield f"{UNEXPLAINED}: no known failure matches this log; its cause may still be in your setup."
        return
    known = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield (
        f"Versions: {known}"
        if known
        else "Versions: the log names none; give them with --versions to narrow the causes."
    )
    for each in explanations[: OTHERS + 1]:
        yield ""
        yield from of(each)
    if len(explanations) > OTHERS + 1:
        yield from ("", f"{len(explanations) - OTHERS - 1} more in --json.")


def of(each: Explanation) -> Iterator[str]:
    row = each.signature
    yield f"{row.id} ({row.kind.words}{f', in {each.phase}' if each.phase else ''})"
    yield from indented(each.line, "  line:   ")
    yield from indented(row.cause, "  cause:  ")
    assumed = [condition for condition in each.diagnosis.open if not condition.startswith("in ")]  # phases go above
    if assumed:
        yield from indented(
            f"This applies with {', '.join(assumed)}; the log does not show whether that is the case.", " " * 10
        )
    yield from cures(each)
    for other in each.narrower[:NARROWER]:
        text = f"{', '.join(other.assumed)}: {other.signature.cause} {other.signature.fix}"
        yield from indented(f"{text} [unverified advice]", "  with:   ")
    yield from (f"  see:    {link}" for link in each.links[:LINKS])
    if len(each.links) > LINKS:
        yield f"          {counted(len(each.links) - LINKS, 'more thread')} in --json"


def cures(each: Explanation) -> Iterator[str]:
    """Yield the proven fixes, then unverified advice, then advice that runs contradict."""
    alike: dict[str, list[ProvenFix]] = {}  # on several devices
    for fix in each.fixes:
        alike.setdefault(fix.says, []).append(fix)
    for says, fixes in islice(alike.items(), FIXES):
        yield from indented(" ".join([says, *(f"[{proof(fix)}]" for fix in fixes)]), "  proven: ")
    if len(alike) > FIXES:
        yield f"          {counted(len(alike) - FIXES, 'more fix', 'more fixes')} in --json"
    if each.signature.fix:
        yield from indented(f"{each.signature.fix} [unverified advice]", "  advice: ")
    for claim in each.claims:
        if claim.holding is not AdviceResult.HOLDS:
            yield from indented(f"{claim.says}: {claim.holding.value}", "  judged: ")
    for needs in each.needs:
        yield from indented(f"not measured yet: it needs {needs}", "  proof:  ")


def proof(fix: ProvenFix) -> str:
    """Return the device and the cells that prove a fix, so that nobody takes a CPU result for a GPU result."""
    more = f" and {len(fix.green) - CELLS} more" if len(fix.green) > CELLS else ""
    device = HARDWARE.get(fix.device, f"on {fix.device}")
    return f"green {device}, {fix.measured}: {', '.join(fix.green[:CELLS])}{more}; red without it: {fix.red}"


def indented(text: str, start: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
