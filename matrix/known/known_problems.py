"""Loads known problems of upstream issues: for each, cells that should be red and cells that should be green.

A row of ``known_problems.toml`` is an expectation. Only a run shows whether a problem is reproduced.
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from cases.space.case import Case
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet

PACKAGED: Final = Path(__file__).with_name("known_problems.toml")
THREAD: Final = re.compile(r"[\w.-]+/[\w.-]+#\d+|https://\S+")


def checked_link(link: str) -> str:
    """The link.

    Raises:
        ValueError: it names no thread.
    """
    if not THREAD.fullmatch(link):
        raise ValueError(f"{link!r} is no thread; expected owner/repository#number or an https address")
    return link


ThreadLink = Annotated[str, AfterValidator(checked_link)]


class Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cells(Row):
    """A case on some sets.

    ``shows`` is a regular expression for a red cell's reason; ``because`` is why a cell is green, and ``neighbour_of``
    names the red cases that it is compared with: all of the problem, unless the problem has several shapes. Cells with
    a ``device`` are run and judged on it alone; the others on the device of any run.
    """

    case: str
    sets: tuple[str, ...]
    device: Literal["cuda"] | None = None
    shows: str = ""
    because: str = ""
    neighbour_of: tuple[str, ...] = ()

    @field_validator("shows")
    @classmethod
    def compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    def sets_on(self, device: str) -> tuple[str, ...]:
        """The sets, if results on a device judge these cells."""
        return self.sets if self.device in (None, device) else ()


class Claim(Row):
    """Advice from a thread. It holds on a set if the cells in ``green`` are green and those in ``red`` are red."""

    says: str
    green: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    needs: str = ""
    note: str = ""

    @model_validator(mode="after")
    def is_judged(self) -> Claim:
        if bool(self.green or self.red) != bool(self.sets) or not (self.needs or self.sets):
            raise ValueError("a claim needs cells (green or red, and sets), or the hardware in needs=")
        return self


class Problem(Row):
    """One problem, with the threads that report it. ``needs`` is the hardware that is needed to reproduce it.

    A ``silent`` problem raises and logs nothing, but trains, saves or infers wrongly. ``former`` lists the ids of rows
    that this one replaces; they still select it.
    """

    id: str
    title: str
    links: tuple[ThreadLink, ...] = ()
    silent: bool = False
    red: tuple[Cells, ...]
    green: tuple[Cells, ...] = ()
    entries: tuple[str, ...] = ()
    family: bool = False
    claims: tuple[Claim, ...] = ()
    needs: str = ""
    note: str = ""
    former: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """What to read about the problem: its threads."""
        return self.links

    @property
    def no_bug(self) -> str:
        """Why it is no bug, such as ``by design``; empty for a bug."""
        return ""

    @field_validator("red")
    @classmethod
    def show_something(cls, red: tuple[Cells, ...]) -> tuple[Cells, ...]:
        vague = [cells.case for cells in red if cells.sets and re.search(cells.shows, "") is not None]
        if vague:
            raise ValueError(f"{vague[0]}: shows= is missing or matches every text; name a part of the error")
        return red

    @model_validator(mode="after")
    def neighbours_are_red(self) -> Self:
        unknown = {case for cells in self.green for case in cells.neighbour_of} - {cells.case for cells in self.red}
        if unknown:
            raise ValueError(f"neighbour_of names {min(unknown)!r}, which is no red case of this row")
        return self

    def red_beside(self, green: Cells) -> tuple[Cells, ...]:
        """The red cells that some green ones are compared with."""
        return tuple(cells for cells in self.red if not green.neighbour_of or cells.case in green.neighbour_of)

    def cells(self, device: str | None = None) -> Iterator[tuple[str, str]]:
        """Every (set, case) that the problem names, for one device or for all."""
        for each in (*self.red, *self.green):
            yield from ((key, each.case) for key in (each.sets if device is None else each.sets_on(device)))
        for claim in self.claims:
            yield from ((key, case) for key in claim.sets for case in (*claim.green, *claim.red))


AnyProblem = TypeVar("AnyProblem", bound=Problem)


def load(path: Path = PACKAGED, only: Container[str] | None = None) -> tuple[Problem, ...]:
    """Read a table of known problems; ``only`` those with some ids.

    Raises:
        UserError: the file cannot be read, or a row is malformed.
    """
    return read(path, Problem, table="problem", rows_are="known problems", only=only)


def read(
    path: Path, kind: type[AnyProblem], *, table: str, rows_are: str, only: Container[str] | None = None
) -> tuple[AnyProblem, ...]:
    """Read the rows of one table of a TOML file; ``only`` those with some ids.

    Raises:
        UserError: the file cannot be read, or a row is malformed.
    """
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get(table)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: cannot read {rows_are}: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: no {rows_are}; the file needs [[{table}]] tables")
    return tuple(
        validated(kind, row, f"{path.name}: {table} {number}")
        for number, row in enumerate(rows, start=1)
        if only is None or row.get("id") in only
    )


def validated(kind: type[AnyProblem], row: dict[str, Any], location: str) -> AnyProblem:
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{each}." for each in first["loc"]).removesuffix(".")
        reason = ": ".join(part for part in (place, first["msg"].removeprefix("Value error, ")) if part)
        raise UserError(f"{location} ({row.get('id', '?')}): {reason}") from None


def select(problems: Sequence[AnyProblem], only: str) -> tuple[AnyProblem, ...]:
    """The problems with one of the ids, present or former, separated by commas; all problems without ids.

    Raises:
        UserError: an id is unknown.
    """
    ids = [name.strip() for name in only.split(",") if name.strip()]
    known = [name for each in problems for name in (each.id, *each.former)]
    unknown = sorted(set(ids) - set(known))
    if unknown:
        near = get_close_matches(unknown[0], known, n=3)
        raise UserError(f"unknown problem {unknown[0]!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    return tuple(each for each in problems if not ids or not {each.id, *each.former}.isdisjoint(ids))


def work(problems: Iterable[Problem], sets: Sequence[VersionSet], cases: Mapping[str, Case], *, device: str) -> Work:
    """The cells that the problems name for a device, by set; sets without such cells are left out.

    Raises:
        UserError: a problem names an unknown case, or no cell is left to run.
    """
    named: dict[str, dict[str, Case]] = {}
    for each in problems:
        for key, case in each.cells(device):
            if case not in cases:
                raise UserError(f"known problem {each.id}: unknown case {case!r}; `ftmatrix plan` lists the cases")
            named.setdefault(key, {})[case] = cases[case]
    selected = [(each, tuple(named[each.key].values())) for each in sets if each.key in named]
    if not selected:
        raise UserError(
            f"none of these problems has a cell for {device} on these sets; leave --sets out to run all of their cells"
        )
    return selected
