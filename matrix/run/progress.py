"""What the pipeline tells whoever watches. How it looks is decided elsewhere; here is only the silent watcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome


class Progress(Protocol):
    """Told in this order, for each set: started, stages, cells, done. Sets may overlap; ``close`` comes last."""

    def set_started(self, key: str, total: int) -> None: ...

    def stage(self, key: str, text: str) -> None:
        """What is going on before or between cells: resolving, installing, starting."""

    def cell_done(self, outcome: Outcome) -> None: ...

    def set_done(self, key: str) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Watches and says nothing."""

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
