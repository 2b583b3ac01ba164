"""The moved packages that a failure involves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name

from matrix.versions.sets import PACKAGES
from reports.answers.diagnosis.frames import frames

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome
    from matrix.versions.moved_packages import MovedPackage
    from reports.answers.diagnosis.signatures import Signature

WORD: Final = re.compile(r"[a-z]+")


def suspects(outcome: Outcome, signature: Signature | None, moved: tuple[MovedPackage, ...]) -> tuple[str, ...]:
    """The moved packages that the failure involves.

    First those whose versions the signature bounds, then those that its cause names, then those of the traceback, from
    the frame that raised outwards. If only one package moved, that one, whatever the failure says.
    """
    if len(moved) == 1:
        return (moved[0].name,)
    names = {each.name for each in moved}
    bounded = signature.specifiers if signature is not None else {}
    words = WORD.findall(signature.cause.lower()) if signature is not None else ()
    named = (each for each in words if each in PACKAGES)
    trace = outcome.error.traceback if outcome.error is not None else ""
    raised = [str(canonicalize_name(each.package)) for each in reversed([*frames(trace.splitlines())]) if each.package]
    return tuple(name for name in dict.fromkeys((*bounded, *named, *raised)) if name in names)
