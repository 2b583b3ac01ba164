"""Reads the versions that a user has, from ``--have`` or from a question, and tells which sets have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from matrix.errors import UserError
from matrix.keys import without_local
from matrix.versions.sets import PACKAGES
from reports.answers.support.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALIASES: Final = {"pytorch": "torch", "bnb": "bitsandbytes"}
# ``torch 2.8``, ``torch=2.8`` and ``torch@2.8``, which PEP 508 does not know.
LOOSE: Final = re.compile(r"\s*(?P<name>[A-Za-z][\w.-]*?)\s*[ =@]\s*v?(?P<version>\d[\w.+]*)\s*")
SHORT: Final = re.compile(r"==\d+(\.\d+)?")  # every package releases three numbers


def requirement(text: str) -> Requirement:
    """Parse ``--have``, e.g. ``torch==2.8.0`` or ``peft>=0.15,<0.18``. Ignores the build (``+cu128``).

    ``torch==2.8`` and ``torch 2.8`` mean every 2.8 release, ``torch==2.8.*``.

    Raises:
        UserError: the text is not a requirement of a pinned package.
    """
    loose = LOOSE.fullmatch(text)
    try:
        wanted = Requirement(f"{loose['name']}=={loose['version']}" if loose else text)
    except InvalidRequirement:
        raise UserError(f"--have {text!r} is not a requirement; write torch==2.8.0 or peft>=0.15,<0.18") from None
    if wanted.url or wanted.marker or wanted.extras:
        raise UserError(f"--have {text!r}: give a name and versions only, such as torch==2.8.0")
    if not wanted.specifier:
        raise UserError(f"--have {text!r} names no version; write the one that you have, such as torch==2.8.0")
    name = canonicalize_name(wanted.name)
    wanted.name = ALIASES.get(name, name)
    if wanted.name not in PACKAGES:
        raise UserError(f"--have {text!r}: the sets pin {', '.join(PACKAGES)}{did_you_mean(wanted.name, PACKAGES)}")
    wanted.specifier = SpecifierSet(",".join(whole_series(without_local(str(each))) for each in wanted.specifier))
    return wanted


def whole_series(specifier: str) -> str:
    """Return ``==2.8.*`` for ``==2.8``, which PEP 440 reads as 2.8.0 alone."""
    return f"{specifier}.*" if SHORT.fullmatch(specifier) else specifier


def reading(text: str) -> str:
    """Return a sentence if ``--have`` means more than its text says; else nothing.

    Raises:
        UserError: the text is not a requirement of a pinned package.
    """
    wanted = requirement(text)
    if not LOOSE.fullmatch(text) and not any(SHORT.fullmatch(str(each)) for each in Requirement(text).specifier):
        return ""
    return f"--have {text}: read as {wanted}"


def has(pins: Mapping[str, str], have: Iterable[Requirement]) -> bool:
    return all(each.specifier.contains(pins[each.name], prereleases=True) for each in have if each.name in pins)
