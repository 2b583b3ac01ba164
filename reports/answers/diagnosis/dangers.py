"""Finds what is known against a fix: the judgement of the job that the fix leads to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cases.space import options as option_space
from cases.space.options import IllegalError
from reports.answers.judgement.coverage import recorded_options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from cases.space.options import Options, Value
    from matrix.run.outcome import Outcome
    from reports.answers.judgement.consequences import Consequences

SETTING: Final = re.compile(r"\b(\w+)=(?:torch\.)?(\w+)")
DTYPES: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def of_change(
    red: Outcome, green: Outcome, versions: Mapping[str, str], consequences: Consequences, explained: Collection[str]
) -> Iterator[str]:
    """Yield what is red of the job of a green cell, and was not known of the job of the red one."""
    before, after = job_of(red), job_of(green)
    if before is not None and after is not None:
        yield from consequences.new_dangers(before, after, versions, explained)


def of_settings(
    red: Outcome,
    advised: Mapping[str, Value],
    versions: Mapping[str, str],
    consequences: Consequences,
    explained: Collection[str],
) -> Iterator[str]:
    """Yield what is red of the job of a red cell with advised settings; nothing if they fit no such job."""
    before = job_of(red)
    if before is None:
        return
    try:
        after = before.but(**advised)
    except IllegalError:
        return
    yield from consequences.new_dangers(before, after, versions, explained)


def settings_in(advice: str) -> dict[str, Value]:
    """Return the options of the option space that a text sets, as ``name=value`` with upstream's values."""
    named = ((name, DTYPES.get(value, value)) for name, value in SETTING.findall(advice))
    return {
        name: typed
        for name, value in named
        if name in option_space.names()
        for typed in option_space.values(name)
        if str(typed) == value
    }


def job_of(cell: Outcome) -> Options | None:
    """Return the job that a cell ran; None for a call, and for options that this version lacks."""
    return None if "call" in cell.options else recorded_options(tuple(cell.options.items()))
