"""The size of an error for models, adapters and data that people use, where those of cells may exaggerate it."""

from __future__ import annotations

from datetime import date  # noqa: TC003 - pydantic reads annotations
from pathlib import Path
from typing import Final

from pydantic import Field, model_validator

from matrix.known.known_problems import Row

FOLDER: Final = Path(__file__).with_name("sizes")


class Size(Row):
    """A measurement by a script, an error that is the same for any model, or the reason why nothing was measured.

    ``script`` is the path of the script below this folder, with its arguments. ``shows`` is the error that it found in
    ``setting``: the model, the adapter, the data. ``versions`` are the releases with which it ran, on ``day``.
    """

    script: str = Field("", pattern=r"^(sizes/[a-z0-9_/-]+\.py( [\w.=-]+)*)?$")
    shows: str = ""
    setting: str = ""
    versions: str = ""
    day: date | None = None
    same: str = ""
    unmeasured: str = ""

    @property
    def path(self) -> str:
        """The path of the script below ``FOLDER``; empty without a script."""
        return self.script.partition(" ")[0].removeprefix("sizes/")

    @model_validator(mode="after")
    def is_complete(self) -> Size:
        if [bool(each) for each in (self.script, self.same, self.unmeasured)].count(True) != 1:
            raise ValueError("state one of script=, same= and unmeasured=")
        measured = [bool(each) for each in (self.shows, self.setting, self.versions, self.day)]
        if set(measured) != {bool(self.script)}:
            raise ValueError("a script needs shows=, setting=, versions= and day=, and nothing else has them")
        return self
