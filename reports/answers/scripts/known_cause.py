"""Names the known cause of a red cell, and the repository whose maintainers can repair it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matrix.known import findings
from reports.answers.diagnosis import diagnose
from reports.answers.judgement.known_errors import has_error
from reports.answers.judgement.nearest_sets import public
from reports.results.known_results import address, is_shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.known.findings import Finding
    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.signatures import Signature

REPOSITORIES: Final[Mapping[str, str]] = {
    "torch": "pytorch/pytorch",
    "transformers": "huggingface/transformers",
    "peft": "huggingface/peft",
    "bitsandbytes": "bitsandbytes-foundation/bitsandbytes",
    "accelerate": "huggingface/accelerate",
    "trl": "huggingface/trl",
}
FRAME: Final = re.compile(r"site-packages/(\w+)/")


@dataclass(frozen=True, kw_only=True)
class KnownCause:
    """What is known of a failure. ``cause`` is empty if nothing is; ``repository`` is where to file it, and ``why``."""

    cause: str
    links: tuple[str, ...]
    repository: str
    why: str


def known_cause(outcome: Outcome, pins: Mapping[str, str]) -> KnownCause:
    """Return the cause of a red cell by the finding that it shows, or else by the signature that explains it."""
    finding = finding_of(outcome, pins)
    best = next(iter(diagnose.diagnose(diagnose.symptom(outcome, pins))), None)
    signature = best.signature if best else None
    links = (*(finding.references if finding else ()), *(signature.links if signature else ()))
    repository, why = repository_of(outcome, finding, signature)
    return KnownCause(
        cause=finding.title if finding else signature.cause if signature else "",
        links=tuple(dict.fromkeys(map(address, links))),
        repository=repository,
        why=why,
    )


def finding_of(outcome: Outcome, pins: Mapping[str, str]) -> Finding | None:
    """Return the finding that a cell shows, if its versions have the error."""
    for row in findings.load():
        shows = any(cells.case == outcome.case and is_shown(outcome, cells.shows) for cells in row.red)
        if shows and has_error(row, public(pins[row.package])) is not False:
            return row
    return None


def repository_of(outcome: Outcome, finding: Finding | None, signature: Signature | None) -> tuple[str, str]:
    """Return the repository to file a failure in, and the reason for it."""
    if finding is not None:
        return REPOSITORIES[finding.package], f"{finding.package} has the error"
    threads = Counter(link.partition("#")[0] for link in (signature.links if signature else ()))
    ours = [name for name, _ in threads.most_common() if name in REPOSITORIES.values()]
    if ours:
        return ours[0], "threads about such failures are there"
    last = last_package(FRAME.findall(outcome.error.traceback if outcome.error else ""))
    if last:
        return REPOSITORIES[last], f"the traceback ends in {last}"
    used = "transformers" if outcome.options.get("method") == "full" else "peft"
    return REPOSITORIES[used], f"no part of the failure names a package, and {used} is the nearest to the job"


def last_package(frames: Sequence[str]) -> str:
    """Return the last package of the stack in a traceback; torch only if no other one is there."""
    named = [name for name in frames if name in REPOSITORIES]
    return next((name for name in reversed(named) if name != "torch"), named[-1] if named else "")
