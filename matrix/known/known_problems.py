"""Known problems of upstream threads: for each, cells that should be red and cells that should be green.

A row of ``known_problems.toml`` claims nothing: only a run shows that a report is reproduced.
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cases.space.case import Case
    from matrix.run.pipeline import Work
    from matrix.versions.sets import VersionSet

PACKAGED: Final = Path(__file__).with_name("known_problems.toml")
FINDINGS: Final = PACKAGED.with_name("findings.toml")  # the same kind of rows, of what no thread reports
THREAD: Final = re.compile(r"[\w.-]+/[\w.-]+#\d+|https://\S+")


class Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cells(Row):
    """A case on some sets. ``shows`` is a regular expression for a red cell's reason, ``because`` why it is green."""

    case: str
    sets: tuple[str, ...]
    shows: str = ""
    because: str = ""

    @field_validator("shows")
    @classmethod
    def compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from None
        return pattern


class Claim(Row):
    """Advice from a thread: it holds where the cells that it says are green are green, and the red ones red."""

    says: str
    green: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    needs: str = ""
    note: str = ""

    @model_validator(mode="after")
    def is_judged(self) -> Claim:
        if bool(self.green or self.red) != bool(self.sets) or not (self.needs or self.sets):
            raise ValueError("a claim names its cells (green or red, and sets), or the hardware that it needs")
        return self


class Problem(Row):
    """A report, or several of one thing. ``needs`` is the hardware without which it cannot be shown.

    ``silent``: it raises nothing, and trains, saves or infers wrongly.
    """

    id: str
    title: str
    links: tuple[str, ...] = ()
    silent: bool = False
    red: tuple[Cells, ...]
    green: tuple[Cells, ...] = ()
    entries: tuple[str, ...] = ()
    family: bool = False
    claims: tuple[Claim, ...] = ()
    needs: str = ""
    note: str = ""

    @field_validator("red")
    @classmethod
    def show_something(cls, red: tuple[Cells, ...]) -> tuple[Cells, ...]:
        vague = [cells.case for cells in red if cells.sets and re.search(cells.shows, "") is not None]
        if vague:
            raise ValueError(f"{vague[0]}: shows= is missing, or any text would do")
        return red

    @field_validator("links")
    @classmethod
    def are_threads(cls, links: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [link for link in links if not THREAD.fullmatch(link)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no thread: owner/repository#number, or an https address")
        return links

    def cells(self) -> Iterator[tuple[str, str]]:
        """Every (set, case) that the problem names."""
        for each in (*self.red, *self.green):
            yield from ((key, each.case) for key in each.sets)
        for claim in self.claims:
            yield from ((key, case) for key in claim.sets for case in (*claim.green, *claim.red))


def load(path: Path = PACKAGED) -> tuple[Problem, ...]:
    """The table.

    Raises:
        UserError: it cannot be read, or a row is malformed.
    """
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("problem")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: no table of known problems: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: no table of known problems: there is no [[problem]] in it")
    return tuple(problem(row, f"{path.name}: problem {number}") for number, row in enumerate(rows, start=1))


def problem(row: dict[str, Any], at: str) -> Problem:
    try:
        return Problem.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{at} ({row.get('id', '?')}): {place}: {first['msg']}") from None


def select(problems: Sequence[Problem], only: str) -> tuple[Problem, ...]:
    """The problems with one of the ids, separated by commas; all problems without ids.

    Raises:
        UserError: there is no such problem.
    """
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    unknown = sorted(set(wanted) - {each.id for each in problems})
    if unknown:
        near = get_close_matches(unknown[0], [each.id for each in problems], n=3)
        raise UserError(
            f"there is no known problem {unknown[0]!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")
        )
    return tuple(each for each in problems if not wanted or each.id in wanted)


def work(problems: Iterable[Problem], sets: Sequence[VersionSet], cases: Mapping[str, Case]) -> Work:
    """The cells that the problems name, by set; sets without such cells are left out.

    Raises:
        UserError: a problem names a case that there is not, or nothing is left to run.
    """
    wanted: dict[str, dict[str, Case]] = {}
    for each in problems:
        for key, case in each.cells():
            if case not in cases:
                raise UserError(f"known problem {each.id}: there is no case {case!r}; `ftmatrix plan` lists them")
            wanted.setdefault(key, {})[case] = cases[case]
    chosen = [(each, tuple(wanted[each.key].values())) for each in sets if each.key in wanted]
    if not chosen:
        raise UserError("none of these problems has a cell on these sets: leave --sets out to run all that they name")
    return chosen
