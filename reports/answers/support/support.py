"""In which versions something works: per package the stretches that are green, green with a setting, red or unknown.

As data it is ``support.json``, whose JSON Schema is ``schema/support.schema.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from cases.space.options import OWN_CODE
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.run.outcome import Stored
from matrix.versions.sets import PACKAGES
from reports.answers import knowledge
from reports.answers.support.query import SAID, Need, check, parse
from reports.answers.support.recommend import CPU, USUAL, candidates
from reports.answers.support.status import GOOD, NOT_RUN, Known, Standing
from reports.answers.support.version_ranges import Stretch, Turn, culprits, measured, stretches, turns, why

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reports.answers.support.recommend import Candidate
    from reports.results.grid import Grid

SCHEMA: Final = 1
SCHEMA_FILE: Final = Path(__file__).parents[2] / "schema" / "support.schema.json"
PUBLISHED: Final = knowledge.PUBLISHED / "support.json"


class SetSupport(Stored):
    """How a set stands, and the cells that show it; ``settings`` are what has to be set."""

    set: str
    standing: Standing
    settings: str = ""
    cells: tuple[str, ...] = ()
    reason: str = Field(default="", description="why it is unknown")


class Support(Stored):
    """Where something works. ``needs`` are its terms in full; ``job`` is what it is usually called, if it is usual."""

    needs: tuple[str, ...]
    job: str = ""
    sets: tuple[SetSupport, ...] = Field(default=(), description="those on which something is known, oldest first")
    packages: dict[str, tuple[Stretch, ...]]
    turns: tuple[Turn, ...] = ()


class DeviceSupport(Stored):
    """Of one kind of device; what another one shows says nothing of it. ``first`` and ``last`` are days of its runs."""

    device: str
    hardware: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    support: tuple[Support, ...]


class SupportDocument(Stored):
    """``support.json``."""

    schema_: int = Field(alias="schema")
    devices: tuple[DeviceSupport, ...]


def json_schema() -> str:
    schema = SupportDocument.model_json_schema(by_alias=True)
    return json.dumps({"$schema": GenerateJsonSchema.schema_dialect, **schema}, indent=2) + "\n"


def dumped(found: SupportDocument) -> str:
    """Without what is empty, which is most of it."""
    return found.model_dump_json(by_alias=True, exclude_defaults=True) + "\n"


def support_document(grids: Mapping[str, Grid]) -> SupportDocument:
    """Of everything that was measured: the usual jobs, then every flow, method, quantisation and strategy."""
    return SupportDocument(schema=SCHEMA, devices=tuple(everything(device, matrix) for device, matrix in grids.items()))


def everything(device: str, matrix: Grid) -> DeviceSupport:
    known = Known(matrix)
    found = [*usual(known), *(support(known, (need,)) for need in features(known))]
    return on_device(device, matrix, found)


def published(device: str, path: Path = PUBLISHED) -> tuple[Support, ...]:
    """Of the usual jobs, by everything that was published of a device; nothing if nothing was.

    Raises:
        UserError: the document cannot be read.
    """
    try:
        document = SupportDocument.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(f"{path}: no document of support: {error}") from None
    return tuple(each for of in document.devices if of.device == device for each in of.support if each.job)


def usual(known: Known) -> tuple[Support, ...]:
    """Of the usual jobs."""
    return tuple(support(known, tuple(map(parse, each.needs)), job=each.job) for each in USUAL)


def features(known: Known) -> Iterator[Need]:
    """A need for each combination that was measured of what a need says in any case."""
    found = dict.fromkeys(
        tuple((name, str(point.stated[name])) for name in SAID)
        for point in known.points
        if point.stated["flow"] not in OWN_CODE
    )
    needs = (parse(" ".join(f"{name}={value}" for name, value in each)) for each in sorted(found))
    yield from (need for need in needs if known.ways(need))


def support_of(needs: Sequence[Need], device: str, grids: Mapping[str, Grid]) -> SupportDocument:
    """What is known on a device; where nothing was measured on it, that, and beside it what the CPU's results say.

    Raises:
        UserError: there can be no case of a need.
    """
    asked = device if device in grids else CPU
    found = [on_device(asked, grids[asked], [support(Known(grids[asked]), needs)])] if asked in grids else []
    nothing = [] if device in grids else [DeviceSupport(device=device, support=(unmeasured(needs, device),))]
    return SupportDocument(schema=SCHEMA, devices=(*nothing, *found))


def on_device(device: str, matrix: Grid, found: Iterable[Support]) -> DeviceSupport:
    days = {f"{outcome.started:%Y-%m-%d}" for outcome in matrix.outcomes}
    return DeviceSupport(
        device=device,
        hardware=tuple(sorted({outcome.hardware for outcome in matrix.outcomes})),
        first=min(days, default=""),
        last=max(days, default=""),
        support=tuple(found),
    )


def unmeasured(needs: Sequence[Need], device: str) -> Support:
    """Of a device on which nothing was measured.

    Raises:
        UserError: there can be no case of a need.
    """
    for need in needs:
        check(need)
    nothing = Stretch(versions="", standing=Standing.UNKNOWN, reason=f"nothing measured on {device} is published")
    return Support(needs=tuple(each.terms for each in needs), packages=dict.fromkeys(PACKAGES, (nothing,)))


def support(known: Known, needs: Sequence[Need], *, job: str = "") -> Support:
    """Where all needs are met.

    Raises:
        UserError: there can be no case of a need.
    """
    oldest_first = candidates(known, needs)[::-1]
    tried = [each for each in oldest_first if why(each) != NOT_RUN and not each.column.blocked]
    moves = tuple(turns(tried))
    guilty = culprits(tried, moves)
    return Support(
        needs=tuple(each.terms for each in needs),
        job=job,
        sets=tuple(map(of_set, tried)),
        packages={name: tuple(stretches(measured(name, tried, guilty))) for name in PACKAGES},
        turns=moves,
    )


def of_set(candidate: Candidate) -> SetSupport:
    good = candidate.standing in GOOD
    shown = [held for held in candidate.held if good or held.standing is candidate.standing]
    return SetSupport(
        set=candidate.key,
        standing=candidate.standing,
        settings=candidate.settings if good else "",
        cells=tuple(dict.fromkeys(str(CellKey(held.set, case)) for held in shown for case in held.proof)),
        reason=why(candidate),
    )
