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
OTHER_BUILDS: Final = ("cpu", "rocm", "xpu")  # prefixes of the local versions of torch's other builds
# The most basic uses (``call=``) with the packages that they import. Every job includes some of them.
BASIC_CALLS: Final = {
    "peft_utilities": ("torch", "transformers", "peft"),
    "lora_trains": ("torch", "transformers", "peft", "accelerate"),
    "trainer_steps": ("torch", "transformers", "peft", "accelerate"),
    "sft_trains": ("torch", "transformers", "peft", "accelerate", "trl"),
}


@cache
def public(version: str) -> Version:
    """Return a version without its local part: ``2.8.0+cu128`` was measured as ``2.8.0``."""
    try:
        return Version(Version(version).public)
    except InvalidVersion:
        return Version("0")


def without_build(version: str) -> str:
    """Return a version as PyPI lists it: local versions come from other indexes."""
    return without_local(version)


def is_for_gpus(torch: str) -> bool:
    """Tell if results of CUDA GPUs apply to a build of torch; they may if it does not name its device."""
    return not local_version(torch).startswith(OTHER_BUILDS)


def used_packages(options: Options) -> tuple[str, ...]:
    """Return the packages that a job uses."""
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
    """Tell if a set consists of the six packages; some sets add a seventh, which is not read from environments."""
    changes = SetKey.parse(column.key).changes
    return not changes or changes[0].name.startswith(PACKAGES)


def differing_packages(
    versions: Mapping[str, str], column: SetRecord, names: Iterable[str] = PACKAGES
) -> tuple[str, ...]:
    """Return the packages that are missing or have another version than the set."""
    return tuple(name for name in names if name not in versions or public(versions[name]) != public(column.pins[name]))


def nearest_first(versions: Mapping[str, str], columns: Sequence[SetRecord], names: Sequence[str]) -> list[SetRecord]:
    """Sort sets by distance: fewest differing packages, then fewest releases in between, then the newest."""
    known = {name: sorted({public(column.pins[name]) for column in columns}) for name in names}

    def distance(column: SetRecord) -> tuple[int, int]:
        differing = differing_packages(versions, column, names)
        steps = (
            abs(bisect_left(known[name], public(versions[name])) - bisect_left(known[name], public(column.pins[name])))
            for name in differing
            if name in versions
        )
        return len(differing), sum(steps)

    newest_first = sorted((each for each in columns if is_plain(each)), key=lambda each: each.as_of, reverse=True)
    return sorted(newest_first, key=distance)


def is_within(versions: Mapping[str, str], columns: Sequence[SetRecord], names: Sequence[str]) -> bool:
    """Tell if the version of each package lies between the oldest and the newest of the sets."""
    return bool(columns) and all(
        name in versions
        and min(public(each.pins[name]) for each in columns)
        <= public(versions[name])
        <= max(public(each.pins[name]) for each in columns)
        for name in names
    )


def enclosing_sets(
    versions: Mapping[str, str], columns: Sequence[SetRecord], names: Sequence[str]
) -> tuple[SetRecord, SetRecord] | None:
    """Return the newest dated set that is older in every package, and the oldest that is newer; None without both."""
    installed = [name for name in names if name in versions]
    dated = sorted((each for each in columns if SetKey.parse(each.key).is_slice), key=lambda each: each.as_of)
    older = [each for each in dated if all(public(each.pins[name]) <= public(versions[name]) for name in installed)]
    newer = [each for each in dated if all(public(each.pins[name]) >= public(versions[name]) for name in installed)]
    return (older[-1], newer[0]) if older and newer else None
