"""Compares CPU and GPU results. Each difference is a finding.

``devices.json`` stores the comparison; ``schema/devices.schema.json`` is its JSON Schema.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field
from pydantic.json_schema import GenerateJsonSchema

from reports.answers import knowledge
from reports.results.comparison import Comparison

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reports.results.grid import Grid

SCHEMA: Final = 1
SCHEMA_FILE: Final = Path(__file__).parents[2] / "schema" / "devices.schema.json"
PUBLISHED: Final = knowledge.PUBLISHED / "devices.json"
CPU, CUDA = "cpu", "cuda"


class DevicesDocument(Comparison):
    """``devices.json``."""

    schema_: int = Field(alias="schema")


def json_schema() -> str:
    schema = DevicesDocument.model_json_schema(by_alias=True)
    return json.dumps({"$schema": GenerateJsonSchema.schema_dialect, **schema}, indent=2) + "\n"


def dumped(comparison: Comparison) -> str:
    """Return the comparison as JSON, without empty fields."""
    document = DevicesDocument(schema=SCHEMA, **{name: getattr(comparison, name) for name in Comparison.model_fields})
    return document.model_dump_json(by_alias=True, exclude_defaults=True, indent=1) + "\n"


def everything(grids: Mapping[str, Grid]) -> Comparison:
    """Compare grids by device; the result is empty if one of the two is missing."""
    return compare(grids[CPU], grids[CUDA]) if {CPU, CUDA} <= grids.keys() else Comparison()


def of_run(device: str, matrix: Grid, others: Mapping[str, Grid]) -> Comparison:
    """Compare a run with the results of the other kind of device, leaving out other results of its own.

    The result is empty for ranks that shared a GPU: they are neither kind.
    """
    return everything({**others, device: matrix}) if device in (CPU, CUDA) else Comparison()


def compare(cpu: Grid, gpu: Grid) -> Comparison:
    """Compare every GPU cell with the nearest CPU cell of its case."""
    from reports.answers.devices import frames  # here, because importing pandas takes a second

    cells = frames.cells(cpu), frames.cells(gpu)
    pairs = frames.paired(*cells, frames.near_sets(cpu.sets, gpu.sets))
    return Comparison(
        pairs=tuple(frames.compared_sets(pairs, cpu.sets, gpu.sets)),
        differences=tuple(frames.differences(pairs, *cells)),
        alone=len(gpu.outcomes) - len(pairs),
    )
