"""The interface through which the pipeline reports progress, and a watcher that ignores it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome


class Progress(Protocol):
    """Receives for each set, in this order: started, stages, cells, done. Sets may overlap; ``close`` comes last."""

    def set_started(self, key: str, total: int) -> None: ...

    def stage(self, key: str, text: str) -> None:
        """A stage before or between cells: resolving, installing, starting."""

    def cell_done(self, outcome: Outcome) -> None: ...

    def set_done(self, key: str) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Ignores all progress."""

    def set_started(self, key: str, total: int) -> None:
        pass

    def stage(self, key: str, text: str) -> None:
        pass

    def cell_done(self, outcome: Outcome) -> None:
        pass

    def set_done(self, key: str) -> None:
        pass

    def close(self) -> None:
        pass
