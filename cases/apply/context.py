"""The context of a rank: its options, place, folders, reference and reporter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases.reference.twin import Trajectory
    from cases.runtime.case_suite import Reporter
    from cases.space.options import Options
    from cases.space.place import Place


def nothing(*_: Any) -> None:
    """Record no modules: a cell that is not located."""


@dataclass(frozen=True)
class Context:
    """One rank in one stage of a case.

    ``cache`` is shared by all cases of a version set; ``kept`` is the cell's folder, which outlives a stage;
    ``given`` holds what an earlier stage kept, possibly under another version set.
    """

    options: Options
    place: Place
    cache: Path
    kept: Path
    given: Path
    twin: Callable[[], Trajectory]
    reporter: Reporter
    record_modules: Callable[[Any, Callable[[], Any]], None] = nothing  # of a model that may be wrapped later
