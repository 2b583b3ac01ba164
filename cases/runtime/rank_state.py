"""The state of one rank as its supervisor sees it: its reports, its silence, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.runtime.wire import ErrorReport, Event, WireError
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN_BYTES = 200  # of a line that is no event


@dataclass
class RankState:
    """The reports and the end of one rank. Times are seconds since the cell started.

    ``began_at`` is when its stage began; ``exit_code`` is negative for a signal, as in ``subprocess``; ``ended_by_us``
    if the supervisor ended it; ``last_words`` are the telling line of the log of a rank that vanished; ``oom_killed``
    if the kernel killed processes for lack of memory when it vanished.
    """

    number: int
    began_at: float = 0.0
    phase: Phase | None = None
    checks: list[Check] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    late_modules: tuple[str, ...] = ()
    error: ErrorReport | None = None
    error_at: float = float("inf")
    done: bool = False
    exit_code: int | None = None
    exit_at: float = float("inf")
    ended_by_us: bool = False
    last_event_at: float = 0.0
    starved_s: float = 0.0  # of its present silence
    waiting_in: str = ""
    last_words: str = ""
    oom_killed: bool = False

    def receive(self, event: Event, now: float) -> None:
        """Take in one event."""
        if not self.last_event_at:
            self.metrics["start_s"] = round(now - self.began_at, 4)
        if self.silence(now):
            longest = max(self.metrics.get("longest_silence_s", 0.0), self.silence(now))
            self.metrics["longest_silence_s"] = round(longest, 3)
        self.last_event_at, self.starved_s = now, 0.0
        self.phase = event.phase or self.phase
        self.checks += event.checks
        self.metrics.update(event.metrics)
        self.facts.update(event.facts)
        self.series = event.series or self.series
        self.modules |= frozenset(event.modules)
        self.late_modules = event.late_modules or self.late_modules
        for name, seconds in event.spent.items():
            self.metrics[name] = round(self.metrics.get(name, 0.0) + seconds, 4)
        if event.error is not None:
            self.error, self.error_at = event.error, now
        if event.done:
            self.done = True
            self.metrics["body_s"] = round(now, 4)

    def silence(self, now: float) -> float:
        """Seconds since the last event. The import of a cold start has no events, so silence begins after it."""
        return 0.0 if self.phase in (None, Phase.IMPORT) else now - self.last_event_at

    def starve(self, seconds: float, now: float) -> None:
        """Note that this rank, or one that it waits for, waited for a core."""
        self.starved_s = min(self.starved_s + seconds, self.silence(now))

    def counted_silence(self, now: float) -> float:
        """The silence that the rank is to blame for."""
        return self.silence(now) - self.starved_s

    @property
    def failed(self) -> bool:
        return self.error is not None or (self.exit_code is not None and not self.done)

    @property
    def vanished(self) -> bool:
        """It ended by itself, without an error and without reporting that it was done."""
        return not self.done and not self.ended_by_us and self.error is None and self.exit_code is not None


def parse_event(line: bytes) -> Event:
    """The event on a line of a rank's pipe. Any other text becomes an error: something else wrote to our pipe."""
    try:
        return Event.from_json(line)
    except WireError:
        shown = line[:SHOWN_BYTES].decode(errors="replace")
        return Event(error=ErrorReport("ForeignReport", f"not a report: {shown}", is_ours=True))


def worst_metrics(ranks: Sequence[RankState]) -> dict[str, float]:
    """The worst value of each metric over all ranks."""
    names = {name for rank in ranks for name in rank.metrics}
    return {name: max(rank.metrics.get(name, 0.0) for rank in ranks) for name in sorted(names)}
