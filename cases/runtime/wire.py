"""What a fork server is asked to run, as it travels over its socket: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Job:
    """One cell, or one probe of what this machine and version can do.

    ``name`` is a case's id or a probe's name; ``folder`` gets what the ranks write, ``cache`` is shared by all jobs of
    a version set, ``given`` holds what a cell of another set kept for this one. ``silence_s`` is how long a rank may go
    without saying anything, and ``silence_why`` why this one may for longer than others; ``deadline_s`` is how long the
    whole job may take, ``memory_mib`` what its ranks may hold together. ``gpus`` are the UUIDs of those that are lent
    to it, one a rank.
    """

    kind: str
    name: str
    ranks: int
    device: str
    folder: str
    cache: str
    given: str = ""
    silence_s: float = 60.0
    silence_why: str = ""
    deadline_s: float = 300.0
    memory_mib: int = 8192
    gpus: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)  # of the case, if the job is a cell

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Job:
        fields: dict[str, Any] = json.loads(line)
        return cls(**{**fields, "gpus": tuple(fields["gpus"])})
