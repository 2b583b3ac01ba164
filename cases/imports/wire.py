"""Messages between the harness and the process that imports combinations of versions."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

SCHEMA = 1
LIBRARIES = ".libraries.json"  # suffix of a file beside the results: versions of the environment's modules


@dataclass(frozen=True)
class Combination:
    """Folders with unpacked wheels to lay over the environment, first one first, and what they contain.

    ``variants`` are the versions of trl and their folders: nothing else imports trl, so that each is imported in a
    process that has imported the rest.
    """

    versions: dict[str, str]
    folders: tuple[str, ...]
    variants: tuple[tuple[str, str], ...]

    def line(self) -> str:
        return json.dumps({"schema": SCHEMA, **asdict(self)})

    @classmethod
    def parsed(cls, line: str) -> Combination:
        row = json.loads(line)
        if row["schema"] != SCHEMA:
            raise ValueError(f"a combination of schema {row['schema']}, expected {SCHEMA}")
        variants = tuple((version, folder) for version, folder in row["variants"])
        return cls(versions=row["versions"], folders=tuple(row["folders"]), variants=variants)


@dataclass(frozen=True)
class StepResult:
    """The result of one import or constructor; ``error`` is empty if it worked.

    ``places`` are the modules of the frames of the traceback, outermost first, without those of importlib.
    """

    step: str
    error: str = ""
    message: str = ""
    places: tuple[str, ...] = ()

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parsed(cls, line: str) -> StepResult:
        row = json.loads(line)
        return cls(**{**row, "places": tuple(row["places"])})


@dataclass(frozen=True)
class CombinationResult:
    """The results of one combination. ``ended`` says why there are none: a signal, or the time limit."""

    versions: dict[str, str]
    steps: tuple[StepResult, ...]
    python: str
    torch: str
    seconds: float
    ended: str = ""

    def line(self) -> str:
        return json.dumps({"schema": SCHEMA, **asdict(self)})

    @classmethod
    def parsed(cls, line: str) -> CombinationResult:
        row = json.loads(line)
        if row.pop("schema") != SCHEMA:
            raise ValueError(f"expected results of schema {SCHEMA}")
        steps = tuple(StepResult(**{**each, "places": tuple(each["places"])}) for each in row.pop("steps"))
        return cls(steps=steps, **row)
