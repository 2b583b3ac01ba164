"""Digests of the numbers that a cell compares. Equal digests mean that a mutant changed none of them, bit for bit."""

from __future__ import annotations

import contextlib
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cases.checks import observers
from cases.injection.patching import around
from cases.reference import tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator

FACT = "digest of the numbers"


@contextlib.contextmanager
def reported(reporter: Any, rank: int, stage: int) -> Iterator[None]:
    """Report a digest of every tensor and loss that this process compares with a reference from here on."""
    running = sha256()

    def note(*numbers: Any) -> None:
        for each in numbers:
            running.update((observers.digest(each) if hasattr(each, "detach") else repr(each)).encode())

    def relative(original: Any, found: Any, reference: Any) -> Any:
        note(found)
        return original(found, reference)

    def differential(original: Any, found: Any, twin: Any, options: Any) -> Any:
        note(found.losses, *(each[name] for each in (*found.gradients, found.after) for name in sorted(each)))
        return original(found, twin, options)

    around(tolerance, "relative", relative)
    around(tolerance, "differential", differential)
    yield
    reporter.facts({f"{FACT}, stage {stage}, rank {rank}": running.hexdigest()[:16]})
