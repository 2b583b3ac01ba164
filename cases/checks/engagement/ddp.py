"""The evidence of DDP's options, from its reducer and the gradients it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.checks import shards
from cases.model import tiny
from cases.space.verdict import equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.checks.engagement.recorder import EngagementRecorder
    from cases.space.verdict import Check


def find_unused_parameters(recorder: EngagementRecorder) -> Iterator[Check]:
    """Check DDP's reducer: with a search for unused parameters, it keeps its first buckets."""
    asked = recorder.options.find_unused_parameters
    told = shards.reducer(recorder.wrapped)
    yield equal("the reducer looks for unused parameters", bool(told.get("find_unused_parameters")), asked)
    if recorder.steps == tiny.STEPS and not recorder.options.static_graph:  # the statistics are a sample of steps
        yield equal("the reducer rebuilt its buckets", bool(told.get("has_rebuilt_buckets")), not asked)


def static_graph(recorder: EngagementRecorder) -> Iterator[Check]:
    told = shards.reducer(recorder.wrapped)
    yield equal("the reducer has a static graph", bool(told.get("static_graph")), recorder.options.static_graph)


def gradient_as_bucket_view(recorder: EngagementRecorder) -> Iterator[Check]:
    gradients, storages = recorder.gradient_storages
    shared = storages < gradients
    yield equal("gradients share storages", shared, recorder.options.gradient_as_bucket_view)
