"""Draws an explanation as text for a terminal: the cause, the proven fixes with their proof, unverified advice."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.search.fixes import Kind
from reports.answers.diagnosis.diagnose import UNEXPLAINED
from reports.results.known_results import AdviceResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reports.answers.diagnosis.explain import Explanation
    from reports.answers.diagnosis.outside import OutsideEnd
    from reports.answers.fixes.proven import ProvenFix

WIDTH: Final = 110
LONGEST: Final = 12  # lines of the first answer
FIRST_FIXES: Final = 3
KEPT: Final = ("quant=", "method=", "strategy=")  # what a first fix never changes
FIXES: Final = 4  # of a cause; --json has all
CELLS: Final = 2
LINKS: Final = 5
NARROWER: Final = 3  # more specific causes
OTHERS: Final = 3  # further causes
HARDWARE: Final = {
    "cpu": "on CPU (gloo), not on GPUs",
    "cuda": "on GPUs (NCCL)",
    "cuda-gloo": "on one GPU that all ranks share (gloo)",
}


def lines(
    explanations: Sequence[Explanation],
    versions: Mapping[str, str],
    outside: OutsideEnd | None = None,
    *,
    everything: bool = True,
) -> Iterator[str]:
    """Yield the answer: in short, at most ``LONGEST`` lines about the best explanation; else all that is known."""
    if not explanations:
        text = f"{UNEXPLAINED}: no known failure matches this log; its cause may still be in your setup."
        yield shortened(outside.sentence, WIDTH) if outside else text
        return
    yield versions_line(versions)
    if not everything:
        yield from short(explanations)
        return
    for each in explanations[: OTHERS + 1]:
        yield ""
        yield from of(each)
    if len(explanations) > OTHERS + 1:
        yield from ("", f"{len(explanations) - OTHERS - 1} more in --json.")


def versions_line(versions: Mapping[str, str]) -> str:
    known = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"Versions: {known}"
        if known
        else "Versions: the log names none; give them with --versions to narrow the causes."
    )


def short(explanations: Sequence[Explanation]) -> Iterator[str]:
    """Yield the first answer: cause, at most three fixes as lines to type, and what makes them dangerous."""
    each = explanations[0]
    row = each.signature
    around = [
        f"{row.id} ({row.kind.words}{f', in {each.phase}' if each.phase else ''})",
        f"  line:   {shortened(each.line, WIDTH - 10)}",
    ]
    tail = list(first_advice(each))
    tail += [f"  see:    {link}" for link in each.links[:1]]
    others = [other.signature.id for other in explanations[1:]]
    alternatives = f"or {shortened(', '.join(others), 60)}; " if others else ""
    tail.append(f"  more:   {alternatives}proofs and threads with --all")
    room = LONGEST - 1 - len(around) - len(tail)
    cause = indented(row.cause, "  cause:  ")
    yield from around
    yield from cause if len(cause) <= room else [*cause[: room - 1], f"{cause[room - 1][: WIDTH - 4]} ..."]
    yield from tail


def first_fixes(each: Explanation) -> Iterator[ProvenFix]:
    """Yield the first proven fixes that keep the goal of the job: settings first, those without dangers, small ones."""
    kept = [fix for fix in each.fixes if fix.typed and not any(text.startswith(KEPT) for text in fix.options)]
    by_lines: dict[tuple[str, ...], list[ProvenFix]] = {}
    for fix in sorted(kept, key=lambda fix: (fix.kind is Kind.VERSIONS, bool(fix.dangers), len(fix.typed))):
        by_lines.setdefault(fix.typed, []).append(fix)
    for alike in islice(by_lines.values(), FIRST_FIXES):
        devices = dict.fromkeys(fix.device for fix in alike)
        known = dict.fromkeys(danger for fix in alike for danger in fix.dangers)
        yield replace(alike[0], device=" and ".join(devices), dangers=tuple(known))


def first_advice(each: Explanation) -> Iterator[str]:
    """Yield the first fixes as lines to type, or else the advice, and what is known against them."""
    fixes = list(first_fixes(each))
    yield from (f"  fix:    {'; '.join(fix.typed)}  [proven on {fix.device}]" for fix in fixes)
    if not fixes and each.signature.fix:
        advice = f"{each.signature.fix} [unverified advice]"
        yield from indented(shortened(advice, 2 * (WIDTH - 14)), "  advice: ")
    refuted = [claim.says for claim in each.claims if claim.holding is AdviceResult.DOES_NOT]
    yield from (f"  judged: {shortened(f'does not hold: {says}', WIDTH - 10)}" for says in refuted[:1])
    against = [f"{fix.typed[0]}: {danger}" for fix in fixes for danger in fix.dangers] if fixes else each.dangers
    for danger in against[:1]:
        yield from indented(shortened(danger, 2 * (WIDTH - 20)), "  beware: ")


def shortened(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder=" ...")


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
        for danger in dict.fromkeys(danger for fix in fixes for danger in fix.dangers):
            yield from indented(danger, "  beware: ")
    if len(alike) > FIXES:
        yield f"          {counted(len(alike) - FIXES, 'more fix', 'more fixes')} in --json"
    if each.signature.fix:
        yield from indented(f"{each.signature.fix} [unverified advice]", "  advice: ")
    for claim in each.claims:
        if claim.holding is not AdviceResult.HOLDS:
            yield from indented(f"{claim.says}: {claim.holding.value}", "  judged: ")
    for danger in each.dangers:
        yield from indented(danger, "  beware: ")
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
