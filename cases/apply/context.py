"""The context of a rank: its options, place, folders, reference and reporter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Protocol

    from cases.reference.twin import Trajectory
    from cases.space.options import Options
    from cases.space.place import Place
    from cases.space.verdict import Check, Phase

    class Reporter(Protocol):
        """Reports the events of a rank to its supervisor."""

        def phase(self, phase: Phase) -> None: ...
        def checks(self, checks: list[Check]) -> None: ...
        def metric(self, name: str, value: float) -> None: ...
        def facts(self, facts: dict[str, Any]) -> None: ...
        def modules(self, names: Sequence[str]) -> None: ...
        def beat(self) -> None: ...
        def observing(self) -> AbstractContextManager[None]: ...


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
