"""The names of the checks of ``cases.behaviour``, a module for each room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.checks.call_names import (
    accelerating,
    adapter_methods,
    adapter_utilities,
    adapters,
    data,
    distributed,
    dropout,
    generation,
    low_precision,
    models,
    optimising,
    parallel,
    preferences,
    quantised,
    settings,
    starts,
    trainers,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOMS = (
    accelerating,
    adapter_methods,
    adapter_utilities,
    adapters,
    data,
    distributed,
    dropout,
    generation,
    low_precision,
    models,
    optimising,
    parallel,
    preferences,
    quantised,
    settings,
    starts,
    trainers,
)
CHECKS: Mapping[str, tuple[str, ...]] = {name: checks for room in ROOMS for name, checks in room.CHECKS.items()}
