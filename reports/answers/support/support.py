"""Computes, for each package, the version ranges with which something is green, green with a setting, red or unknown.

``support.json.gz`` stores the result; ``schema/support.schema.json`` is its JSON Schema.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import AliasChoices, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from cases.space.options import OWN_CODE
from matrix import documents
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.run.outcome import Stored
from matrix.versions.sets import PACKAGES
from reports.answers import knowledge
from reports.answers.judgement.known_errors import MeasuredErrors
from reports.answers.pairs.pair_answers import PairAnswer
from reports.answers.support.candidates import candidates
from reports.answers.support.query import ALWAYS_STATED, Query, check, parse
from reports.answers.support.recommend import USUAL
from reports.answers.support.requirements import has
from reports.answers.support.status import CPU, GOOD, NOT_RUN, SupportIndex, SupportStatus
from reports.answers.support.version_ranges import (
    PackageMove,
    VersionRange,
    measured,
    package_moves,
    version_ranges,
    versions_at_fault,
    why,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.requirements import Requirement

    from reports.answers.support.candidates import Candidate
    from reports.results.grid import Grid

SCHEMA: Final = 2  # 1 called a status ``standing`` and moves ``turns``
SCHEMA_FILE: Final = Path(__file__).parents[2] / "schema" / "support.schema.json"
PUBLISHED: Final = knowledge.PUBLISHED / "support.json.gz"


class SetSupport(Stored):
    """The status of a set with the settings it needs and the cells that prove it."""

    set: str
    status: SupportStatus = Field(validation_alias=AliasChoices("status", "standing"))
    settings: str = ""
    cells: tuple[str, ...] = ()
    reason: str = Field(default="", description="why the status is unknown")


class Support(Stored):
    """The version ranges with which queries are green. ``needs`` are their terms; ``job`` names a usual job."""

    needs: tuple[str, ...]
    job: str = ""
    sets: tuple[SetSupport, ...] = Field(default=(), description="sets with a known status, oldest first")
    packages: dict[str, tuple[VersionRange, ...]]
    moves: tuple[PackageMove, ...] = Field(default=(), validation_alias=AliasChoices("moves", "turns"))


class DeviceSupport(Stored):
    """The support on one kind of device. ``first`` and ``last`` are the days of its runs."""

    device: str
    hardware: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    support: tuple[Support, ...]


class SupportDocument(Stored):
    """``support.json.gz``, and the answer of ``ftmatrix can-i-use --json``."""

    schema_: int = Field(alias="schema")
    have: tuple[str, ...] = Field(default=(), description="versions that the sets have")
    not_measured: tuple[str, ...] = Field(default=(), description="parts of the question without any result")
    notes: tuple[str, ...] = ()
    devices: tuple[DeviceSupport, ...]
    pairs: tuple[PairAnswer, ...] = Field(
        default=(), description="what the map of the API says of the given versions, if no set has them"
    )


def json_schema() -> str:
    schema = SupportDocument.model_json_schema(by_alias=True)
    return json.dumps({"$schema": GenerateJsonSchema.schema_dialect, **schema}, indent=2) + "\n"


def dumped(document: SupportDocument) -> str:
    """Return the document as JSON, without empty fields."""
    return document.model_dump_json(by_alias=True, exclude_defaults=True) + "\n"


def support_document(grids: Mapping[str, Grid]) -> SupportDocument:
    """Return the support of the usual jobs, then of every measured flow, method, quantisation and strategy."""
    known = MeasuredErrors(grids[CPU]) if CPU in grids else None
    return SupportDocument(
        schema=SCHEMA, devices=tuple(everything(device, matrix, known) for device, matrix in grids.items())
    )


def everything(device: str, matrix: Grid, known: MeasuredErrors | None = None) -> DeviceSupport:
    index = SupportIndex(matrix, known=known, device=device)
    rows = [*usual(index), *(support(index, (query,)) for query in features(index))]
    return on_device(device, matrix, rows)


def published(device: str, path: Path = PUBLISHED) -> tuple[Support, ...]:
    """Return the published support of the usual jobs on a device; empty if nothing was published.

    Raises:
        UserError: the document cannot be read.
    """
    try:
        document = SupportDocument.model_validate_json(documents.content(path))
    except (OSError, ValidationError) as error:
        raise UserError(f"{path}: not a support document: {error}") from None
    return tuple(each for of in document.devices if of.device == device for each in of.support if each.job)


def usual(index: SupportIndex) -> tuple[Support, ...]:
    """Return the support of the usual jobs."""
    return tuple(support(index, tuple(map(parse, each.needs)), job=each.job) for each in USUAL)


def features(index: SupportIndex) -> Iterator[Query]:
    """Yield a query for each measured combination of flow, method, quantisation and strategy."""
    combinations = dict.fromkeys(
        tuple((name, str(point.stated[name])) for name in ALWAYS_STATED)
        for point in index.points
        if point.stated["flow"] not in OWN_CODE
    )
    queries = (parse(" ".join(f"{name}={value}" for name, value in each)) for each in sorted(combinations))
    yield from (query for query in queries if index.ways(query))


def support_of(
    queries: Sequence[Query], device: str, grids: Mapping[str, Grid], have: Sequence[Requirement] = ()
) -> SupportDocument:
    """Return the support on a device; if nothing was measured there, say so and add the CPU's support.

    ``have`` restricts it to the sets with these versions. Without a query there is no device in the document.

    Raises:
        UserError: no legal case can match a query.
    """
    versions = tuple(map(str, have))
    if not queries:
        return SupportDocument(schema=SCHEMA, have=versions, devices=())
    request = device if device in grids else CPU
    known = MeasuredErrors(grids[CPU]) if CPU in grids else None
    measured = (
        [
            on_device(
                request,
                grids[request],
                [support(SupportIndex(grids[request], known=known, device=request), queries, have=have)],
            )
        ]
        if request in grids
        else []
    )
    nothing = [] if device in grids else [DeviceSupport(device=device, support=(unmeasured(queries, device),))]
    return SupportDocument(schema=SCHEMA, have=versions, devices=(*nothing, *measured))


def on_device(device: str, matrix: Grid, rows: Sequence[Support]) -> DeviceSupport:
    """Return the support on a device, with the hardware and the days of the cells that show it."""
    shown = [CellKey.parse(cell) for row in rows for each in row.sets for cell in each.cells]
    outcomes = [matrix.cells[key.case, key.set] for key in dict.fromkeys(shown)] or matrix.outcomes
    days = {f"{outcome.started:%Y-%m-%d}" for outcome in outcomes}
    return DeviceSupport(
        device=device,
        hardware=tuple(sorted({outcome.hardware for outcome in outcomes})),
        first=min(days, default=""),
        last=max(days, default=""),
        support=tuple(rows),
    )


def unmeasured(queries: Sequence[Query], device: str) -> Support:
    """Return unknown support for a device without results.

    Raises:
        UserError: no legal case can match a query.
    """
    for query in queries:
        check(query)
    nothing = VersionRange(
        versions="", status=SupportStatus.UNKNOWN, reason=f"nothing measured on {device} is published"
    )
    return Support(needs=tuple(each.terms for each in queries), packages=dict.fromkeys(PACKAGES, (nothing,)))


def support(
    index: SupportIndex, queries: Sequence[Query], *, job: str = "", have: Sequence[Requirement] = ()
) -> Support:
    """Return the version ranges with which all queries are green, in the sets that have some versions.

    Raises:
        UserError: no legal case can match a query.
    """
    oldest_first = [each for each in candidates(index, queries)[::-1] if has(each.column.pins, have)]
    measured_sets = [each for each in oldest_first if why(each) != NOT_RUN and not each.column.blocked]
    moves = tuple(package_moves(measured_sets))
    at_fault = versions_at_fault(measured_sets, moves)
    return Support(
        needs=tuple(each.terms for each in queries),
        job=job,
        sets=tuple(map(set_support, measured_sets)),
        packages={name: tuple(version_ranges(measured(name, measured_sets, at_fault))) for name in PACKAGES},
        moves=moves,
    )


def set_support(candidate: Candidate) -> SetSupport:
    good = candidate.status in GOOD
    shown = [query_status for query_status in candidate.statuses if good or query_status.status is candidate.status]
    return SetSupport(
        set=candidate.key,
        status=candidate.status,
        settings=candidate.settings if good else "",
        cells=tuple(
            dict.fromkeys(str(CellKey(query_status.set, case)) for query_status in shown for case in query_status.proof)
        ),
        reason=why(candidate),
    )
