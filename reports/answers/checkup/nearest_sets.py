"""Finds the measured version sets that an environment matches, and its distance from the others.

Only the packages that a job uses count: a TRL release does not affect a job that does not use TRL.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Final

from packaging.version import InvalidVersion, Version

from matrix.keys import SetKey, local_version, without_local
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cases.space.options import Options
    from matrix.run.outcome import SetRecord

LOW_BIT: Final = "8bit"  # in the names of bitsandbytes' optimisers
NOT_FOR_CUDA: Final = ("cpu", "rocm", "xpu")  # how the local parts of torch's other builds begin
# The plainest uses (``call=``), which every job is one of, with the packages that they import.
PLAINEST: Final = {
    "peft_utilities": ("torch", "transformers", "peft"),
    "lora_trains": ("torch", "transformers", "peft", "accelerate"),
    "trainer_steps": ("torch", "transformers", "peft", "accelerate"),
    "sft_trains": ("torch", "transformers", "peft", "accelerate", "trl"),
}


@cache
def public(version: str) -> Version:
    """A version without its local part: ``2.8.0+cu128`` was measured as ``2.8.0``."""
    try:
        return Version(Version(version).public)
    except InvalidVersion:
        return Version("0")


def without_build(version: str) -> str:
    """As a package index has it: local versions are of other indexes."""
    return without_local(version)


def is_for_gpus(torch: str) -> bool:
    """Whether what was measured on GPUs (of CUDA) can be so of a build; one that does not say what it is for may be."""
    return not local_version(torch).startswith(NOT_FOR_CUDA)


def used(options: Options) -> tuple[str, ...]:
    """The packages that a job takes part of."""
    quantised = options.quant != "none"
    uses = {
        "torch": True,
        "transformers": True,
        "peft": options.method != "full",
        "bitsandbytes": quantised or LOW_BIT in options.optim,
        "accelerate": quantised or options.front_end != "loop",
        "trl": options.front_end == "sft",
    }
    return tuple(name for name in PACKAGES if uses[name])


def is_plain(column: SetRecord) -> bool:
    """Whether it was made of its pins: some sets were made for a seventh package, which no environment is asked for."""
    changes = SetKey.parse(column.key).changes
    return not changes or changes[0].name.startswith(PACKAGES)


def differing(versions: Mapping[str, str], column: SetRecord, names: Iterable[str] = PACKAGES) -> tuple[str, ...]:
    """The packages that are there in another version, or not there."""
    return tuple(name for name in names if name not in versions or public(versions[name]) != public(column.pins[name]))


def nearest(versions: Mapping[str, str], columns: Sequence[SetRecord], names: Sequence[str]) -> list[SetRecord]:
    """The sets, the nearest first: fewest packages that differ, then fewest releases between them, then the newest."""
    known = {name: sorted({public(column.pins[name]) for column in columns}) for name in names}

    def distance(column: SetRecord) -> tuple[int, int]:
        off = differing(versions, column, names)
        steps = (
            abs(bisect_left(known[name], public(versions[name])) - bisect_left(known[name], public(column.pins[name])))
            for name in off
            if name in versions
        )
        return len(off), sum(steps)

    newest_first = sorted((each for each in columns if is_plain(each)), key=lambda each: each.as_of, reverse=True)
    return sorted(newest_first, key=distance)


def spanned(versions: Mapping[str, str], columns: Sequence[SetRecord], names: Sequence[str]) -> bool:
    """Whether each package's version lies among those of the sets."""
    return bool(columns) and all(
        name in versions
        and min(public(each.pins[name]) for each in columns)
        <= public(versions[name])
        <= max(public(each.pins[name]) for each in columns)
        for name in names
    )


def around(
    versions: Mapping[str, str], columns: Sequence[SetRecord], names: Sequence[str]
) -> tuple[SetRecord, SetRecord] | None:
    """The sets between which an environment lies in every package, if there are: the newest older, the oldest newer."""
    there = [name for name in names if name in versions]
    dated = sorted((each for each in columns if SetKey.parse(each.key).is_slice), key=lambda each: each.as_of)
    older = [each for each in dated if all(public(each.pins[name]) <= public(versions[name]) for name in there)]
    newer = [each for each in dated if all(public(each.pins[name]) >= public(versions[name]) for name in there)]
    return (older[-1], newer[0]) if older and newer else None
