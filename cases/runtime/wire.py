"""The messages that the harness's processes exchange, as types that read and write themselves as JSON.

=============  ==========================================  ==============================================
message        sender                                      receiver
=============  ==========================================  ==============================================
SessionRequest the harness (a file)                        the pytest session in an environment
Job            a test (a socket)                           the fork server and the job's supervisor
Event          a rank (a pipe, or a file of cases.alone)   the supervisor, or the harness's launchers
CellReport     the supervisor (the same socket), then the  the test, then the harness
               test (a user property, a descriptor)
=============  ==========================================  ==============================================

Every message carries the number of its schema. A reader refuses a newer one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from cases.space.verdict import Check, Phase, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from cases.runtime.silence import SilenceTimeout

    Plain = dict[str, Any]

REPORT_PROPERTY = "outcome"  # the user property of a test that carries its cell report


class WireError(ValueError):
    """A message that cannot be read; the text says why."""


@dataclass(frozen=True)
class Message:
    """A message that is one JSON object on one line, with the number of its schema."""

    SCHEMA: ClassVar[int] = 1

    @classmethod
    def kind_name(cls) -> str:
        return cls.__name__

    def to_json(self) -> str:
        """One line of JSON. Strict UTF-8 follows (execnet, files, pages), so lone surrogates become ``?``."""
        text = json.dumps({"schema": self.SCHEMA, **self.to_plain()}, ensure_ascii=False)
        return text.encode(errors="replace").decode()

    def to_line(self) -> bytes:
        return f"{self.to_json()}\n".encode()

    def to_plain(self) -> Plain:
        """The fields as JSON has them. Fields that have their default are left out."""
        defaults = {each.name: default_of(each) for each in fields(self)}
        given = {name: getattr(self, name) for name, default in defaults.items() if getattr(self, name) != default}
        return {name: plain(value) for name, value in given.items()}

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a message.

        Raises:
            WireError: the text is no such message, or has a newer schema.
        """
        try:
            found = json.loads(text)
        except ValueError as error:
            raise WireError(f"{cls.kind_name()}: not JSON: {error}") from None
        if not isinstance(found, dict) or not isinstance(found.get("schema"), int):
            raise WireError(f"{cls.kind_name()}: expected a JSON object with a schema number")
        schema = found.pop("schema")
        if schema > cls.SCHEMA:
            raise WireError(
                f"{cls.kind_name()}: schema {schema} is newer than {cls.SCHEMA}, the newest that this version reads; "
                "update ftmatrix"
            )
        return cls.from_plain(found)

    @classmethod
    def from_plain(cls, found: Plain) -> Self:
        """Read a message from what ``to_plain`` returned.

        Raises:
            WireError: a field is missing, unknown, or has a value that it cannot have.
        """
        try:
            return cls(**cls.typed(dict(found)))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise WireError(f"{cls.kind_name()}: {error}") from None

    @classmethod
    def typed(cls, found: Plain) -> Plain:
        """The constructor's arguments."""
        return found


def default_of(each: Any) -> Any:
    return each.default_factory() if callable(each.default_factory) else each.default


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Message):
        return value.to_plain()
    if isinstance(value, Check):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


@dataclass(frozen=True)
class Limits(Message):
    """The limits of one job.

    Without ``silence_s``, the seconds a rank may pass without an event, the case's own silence timeout applies.
    ``deadline_s`` limits the whole job; ``memory_mib`` is what its ranks may hold together.
    """

    silence_s: float | None = None
    deadline_s: float = 300.0
    memory_mib: int = 8192


@dataclass(frozen=True)
class SessionRequest(Message):
    """The cells that the harness wants a pytest session to run.

    ``folder`` gets what jobs write and ``cache`` what they share. Cells of ``cold_sample`` run a second time by a cold
    start, which must agree. ``sources`` names, by cell, the folder in which another version set saved what the cell
    loads. ``harness_pid`` is the process that starts the session, which ends with it; 0 to go on without it.
    """

    cells: tuple[str, ...]
    device: str
    folder: str
    cache: str
    limits: Limits = Limits()
    cold_sample: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    harness_pid: int = 0

    def job(self, kind: str, name: str, ranks: int, *, timeout: SilenceTimeout) -> Job:
        """A job of this session. ``timeout`` applies unless the limits have a silence timeout."""
        own = self.limits.silence_s
        return Job(
            kind=kind,
            name=name,
            ranks=ranks,
            device=self.device,
            folder=f"{self.folder}/{kind}/{name}",
            cache=self.cache,
            source=self.sources.get(name, ""),
            silence_s=timeout.silence_s if own is None else own,
            silence_why=timeout.why if own is None else "",
            deadline_s=self.limits.deadline_s,
            memory_mib=self.limits.memory_mib,
        )

    @classmethod
    def typed(cls, found: Plain) -> Plain:
        limits = Limits.from_plain(found.pop("limits", {}))
        cold_sample = tuple(found.pop("cold_sample", ()))
        return {**found, "cells": tuple(found["cells"]), "limits": limits, "cold_sample": cold_sample}


@dataclass(frozen=True)
class Job(Message):
    """A cell, a probe of this machine and version, or a request for the facts of an environment.

    ``kind`` is ``cell``, ``probe`` or ``facts``; ``name`` is a case's id or a probe's name. The ranks write to
    ``folder``; all jobs of a version set share ``cache``; ``source`` is the folder that another version set saved to.
    ``silence_s`` is the silence timeout of a rank, and ``silence_why`` the reason for a longer one than usual.
    ``deadline_s`` limits the whole job, ``memory_mib`` what its ranks hold together. ``gpus`` are the UUIDs of the GPUs
    that were acquired for it, one for each rank. ``options`` are those of the case, so that the processes that run a
    cell need not list the cases.
    """

    kind: str
    name: str
    ranks: int
    device: str
    folder: str
    cache: str
    source: str = ""
    silence_s: float = 60.0
    silence_why: str = ""
    deadline_s: float = 300.0
    memory_mib: int = 8192
    gpus: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def typed(cls, found: Plain) -> Plain:
        return {**found, "gpus": tuple(found.get("gpus", ()))}


@dataclass(frozen=True)
class ErrorReport(Message):
    """An exception that a rank raised. ``is_ours``: the harness or the machine is to blame, not the stack."""

    type: str
    message: str
    traceback: str = ""
    is_ours: bool = False
    rank: int | None = None


@dataclass(frozen=True)
class Event(Message):
    """One event of a rank, which also proves that the rank is alive: an empty event reports nothing else.

    ``series`` are values of each step by name; ``spent`` are seconds to add to metrics; ``modules`` are the modules of
    the case code that the rank imported, e.g. ``cases.apply.build``; ``late_modules`` are modules that the rank had to
    import itself; ``done`` says that the rank has finished its work.
    """

    phase: Phase | None = None
    checks: tuple[Check, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    late_modules: tuple[str, ...] = ()
    error: ErrorReport | None = None
    done: bool = False

    @classmethod
    def typed(cls, found: Plain) -> Plain:
        return {**found, **parsed_result(found)}


@dataclass(frozen=True)
class ServerStart(Message):
    """The start of the fork server that ran a job: ``start`` is ``warm`` or ``cold``, ``why_cold`` the reason."""

    start: str
    why_cold: str = ""
    preload_s: float = 0.0

    @property
    def facts(self) -> dict[str, Any]:
        """As facts of an outcome."""
        return {"start": self.start, "why_cold": self.why_cold, "preload_s": self.preload_s}


@dataclass(frozen=True)
class CellReport(Message):
    """The results of one job. Times in seconds, memory in MiB.

    ``metrics``, ``facts`` and ``series`` are open: cases and probes choose the names. ``modules`` are the modules of
    the case code that the job's processes imported; empty if no process reported them. ``late_modules`` are modules
    that a rank imported although the fork server had preloaded the stack; the supervisor collects them only for a
    profile.
    """

    name: str
    verdict: Verdict
    reason: str = ""
    phase: Phase | None = None
    checks: tuple[Check, ...] = ()
    error: ErrorReport | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    late_modules: tuple[str, ...] = ()
    started: datetime | None = None
    seconds: float = 0.0
    server: ServerStart | None = None

    @property
    def every_fact(self) -> dict[str, Any]:
        """The facts of the job, and how its server started."""
        return {**self.facts, **(self.server.facts if self.server else {})}

    @classmethod
    def typed(cls, found: Plain) -> Plain:
        server = found.get("server")
        started = found.get("started")
        return {
            **found,
            **parsed_result(found),
            "verdict": Verdict(found["verdict"]),
            "started": None if started is None else datetime.fromisoformat(started),
            "server": None if server is None else ServerStart.from_plain(server),
        }


def parsed_result(found: Plain) -> Plain:
    """The fields that an event and a cell report have in common."""
    phase, error = found.get("phase"), found.get("error")
    return {
        "phase": None if phase is None else Phase(phase),
        "checks": tuple(Check(**check) for check in found.get("checks", ())),
        "error": None if error is None else ErrorReport.from_plain(error),
        "series": {name: tuple(values) for name, values in found.get("series", {}).items()},
        "modules": tuple(found.get("modules", ())),
        "late_modules": tuple(found.get("late_modules", ())),
    }
