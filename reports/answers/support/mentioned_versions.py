"""Finds versions of packages in a question, such as ``peft for transformers 4.46``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from matrix.versions.sets import PACKAGES
from reports.answers.support.requirements import ALIASES

NAMES: Final = "|".join((*ALIASES, *PACKAGES))
NUMBER: Final = r"\d+(?:\.\d+)*(?:\.\*)?(?:\.?(?:post|rc|dev)\d*)?"
SPECIFIER: Final = rf"(?:==|>=|<=|~=|!=|<|>) ?{NUMBER}"
# A number without a dot is a version of torch or transformers only, and no number of bits, GPUs or parameters.
PACKAGE: Final = re.compile(
    rf"\b(?P<name>{NAMES})(?: ?versions?)?(?: is)?(?P<specifiers> ?{SPECIFIER}(?: ?, ?{SPECIFIER})*"
    rf"| ?[=@]? ?v?(?P<version>\d+\.{NUMBER})"
    r"| (?P<major>(?<=torch )2|(?<=transformers )[345])(?![\w.*]| ?-?(?:bit|gpu|x)))"
    r"(?:\+\w+)?(?P<newer> ?\+| or (?:newer|later|above)| and (?:newer|later|above))?"
)
OF: Final = re.compile(rf"\bv(?:ersion )?(?P<version>\d+\.{NUMBER}) of (?:the )?(?P<name>{NAMES})\b")
OTHER: Final = re.compile(
    r"\b(?:cuda|cudnn|rocm|driver|python|py|ubuntu|nccl)(?: ?versions?)?(?: is| was)? ?(?:==|>=|=)? ?v?\d+(?:\.\d+)*\b"
    r"|\bcu1[123]\d\b|\b(?:compiled|built) (?:with|for|against) (?:cuda ?)?\d+\.\d+\b|\b(?:nvidia |linux )*drivers?\b"
)
# A version of a package that no set pins, such as that of a framework.
BARE: Final = re.compile(r"(?<![\w.=-])v?\d+(?:\.\d+)+(?![\w.])")
ASKED: Final = re.compile(
    rf"\bversions?\b|\bcompatib\w+|\b(?:which|what) (?:{NAMES})\b|\brequirements?\b|\b(?:newest|latest) (?:{NAMES})\b"
)
# Every set has these; the others are also front ends, unless the question is about versions.
UNSPECIFIC: Final = "torch|pytorch|transformers|peft|bitsandbytes|bnb"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVersions:
    """The versions of a question and the rest of its text. ``asked`` tells that it asks for versions."""

    rest: str
    have: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # of what no set pins
    asked: bool = False


def found_versions(text: str) -> FoundVersions:
    """Find versions in a question in lower case."""
    asked = ASKED.search(text) is not None
    have = [f"{match['name']}=={match['version']}" for match in OF.finditer(text)]
    rest = OF.sub(" ", text)
    have += map(stated, PACKAGE.finditer(rest))
    rest = PACKAGE.sub(" ", rest)
    others = tuple(match[0].strip() for match in OTHER.finditer(rest))
    rest = OTHER.sub(" ", rest)
    bare = re.compile(rf"(?<![\w./=-])(?:{NAMES if asked or have else UNSPECIFIC})(?: library| package)?(?![\w=]|\.\w)")
    return FoundVersions(rest=bare.sub(" ", rest), have=tuple(have), others=others, asked=asked)


def stated(match: re.Match[str]) -> str:
    version = match["version"] or match["major"]
    if not version:
        return f"{match['name']}{match['specifiers'].replace(' ', '')}"
    return f"{match['name']}{'>=' if match['newer'] else '=='}{version}"
