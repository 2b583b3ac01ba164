"""Derives proven fixes from pairs of cells: one green, and one red for the same cause."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from cases.space.options import Options, names
from cases.space.verdict import Verdict
from matrix.keys import CellKey
from matrix.search.fixes import Change, Kind
from matrix.search.neighbours import steps
from matrix.versions.sets import PACKAGES
from reports.answers.scripts.edits import change_text
from reports.answers.scripts.hints import in_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.known.known_problems import Cells, Problem
    from matrix.run.outcome import Outcome
    from reports.answers.fixes.remedies import Remedy
    from reports.results.grid import Grid

PREFERRED: Final = tuple(Kind)
FEW: Final = 2  # most packages to list by name; a move of more names the set

Pins = dict[str, dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class ProvenFix:
    """A change that leads from a red cell to green ones, measured on one device."""

    change: str
    because: str
    kind: Kind
    red: str
    green: tuple[str, ...]
    device: str
    hardware: str
    measured: str
    typed: tuple[str, ...] = ()  # the lines that a user types
    options: tuple[str, ...] = ()  # the options that they change, as option=value
    dangers: tuple[str, ...] = ()  # what is red of the job after it, and was not before

    @property
    def says(self) -> str:
        return ": ".join(part for part in (self.change, self.because) if part)

    def as_json(self) -> dict[str, Any]:
        return {"says": self.says, "proven": True, **asdict(self), "kind": self.kind.value}


def by_problem(
    problem: Problem, red: Sequence[Outcome], matrix: Grid, device: str, *, keep_unquantised: bool = False
) -> Iterator[ProvenFix]:
    """Yield the fixes that the green cells of a known problem prove for its red cells.

    Fixes that change settings are looked up on every set, not only on those that the problem names.
    ``keep_unquantised`` leaves out fixes that quantise a base which the red cell does not quantise.
    """
    pins = {column.key: column.pins for column in matrix.sets}
    for green, because, before in proofs(problem, red, matrix, device, pins):
        fix = by_comparable_pair(before[0], green, because, device, pins, keep_unquantised=keep_unquantised)
        if fix is not None:
            yield fix


def proofs(
    problem: Problem, red: Sequence[Outcome], matrix: Grid, device: str, pins: Pins
) -> Iterator[tuple[Outcome, str, list[Outcome]]]:
    """Yield each green cell of a known problem, why it is green, and the red cells beside it, the nearest first."""
    for cells in problem.green:
        beside = {each.case for each in problem.red_beside(cells)}
        shown = [each for each in red if each.case in beside]
        for key in () if not shown else pins if is_a_setting(cells, problem) else cells.sets_on(device):
            green = matrix.lookup(cells.case, key)
            if green is not None and green.verdict is Verdict.PASS:
                yield green, cells.because, nearest_first(shown, green, pins)


def by_comparable_pair(
    red: Outcome, green: Outcome, because: str, device: str, pins: Pins, *, keep_unquantised: bool
) -> ProvenFix | None:
    """Return the fix that two cells prove; None if they differ in case and set, or if it says nothing."""
    fix = by_pair(red, green, because, device, pins)
    comparable = red.set == green.set or red.case == green.case
    return fix if fix.says and comparable and not (keep_unquantised and adds_quantisation(red, green)) else None


def adds_quantisation(red: Outcome, green: Outcome) -> bool:
    """Tell if only the green cell is quantised: a change of the base weights, and no fix of the job."""
    options = (red.options, green.options)
    without, quantised = (each.get("quant", "none") == "none" and "call" not in each for each in options)
    return without and not quantised and not is_other_code(red, green)


def is_a_setting(green: Cells, problem: Problem) -> bool:
    """Tell if the case is green on a set where another one is red, so that the versions are not the reason."""
    return any(green.case != red.case and set(green.sets) & set(red.sets) for red in problem.red_beside(green))


def nearest_first(red: Sequence[Outcome], green: Outcome, pins: Pins) -> list[Outcome]:
    """Sort red cells by their distance from a green one; for a call, the same call on other sets comes first."""
    return sorted(
        red,
        key=lambda each: (not ("call" in green.options and each.case == green.case), *distance(each, green, pins)),
    )


def distance(red: Outcome, green: Outcome, pins: Pins) -> tuple[bool, bool, int, int]:
    """Sort key: few differences first, and settings before versions."""
    return (
        red.set != green.set,
        is_other_code(red, green),
        len(differing_settings(red, green)),
        len(moved_packages(red, green, pins)),
    )


def is_other_code(red: Outcome, green: Outcome) -> bool:
    """Tell if the two cells ran different flows or calls."""
    return any(red.options.get(name) != green.options.get(name) for name in ("flow", "call"))


def differing_settings(red: Outcome, green: Outcome) -> tuple[Change, ...]:
    """Return the differing options that the green cell states; empty if the cells ran different code."""
    if is_other_code(red, green):
        return ()
    plain = Options()
    return tuple(
        Change(name=name, old=old, new=green.options[name])
        for name in names()
        if name in green.options and (old := red.options.get(name, getattr(plain, name))) != green.options[name]
    )


def kind_of(different: Sequence[Change], red: Outcome) -> Kind:
    """Return ``SETTINGS`` if a fix search could make the changes; other changes give up part of the goal."""
    settings = steps(Options().but(**red.options), paired=False) if different else []
    return (
        Kind.SETTINGS
        if different and all((each.name, each.new) in settings for each in different)
        else Kind.ALTERNATIVE
    )


def moved_packages(red: Outcome, green: Outcome, pins: Pins) -> tuple[Change, ...]:
    old, new = pins[red.set], pins[green.set]
    return tuple(
        Change(name=name, old=old[name], new=new[name]) for name in old if name in new and old[name] != new[name]
    )


def by_pair(red: Outcome, green: Outcome, because: str, device: str, pins: Pins) -> ProvenFix:
    different = differing_settings(red, green)
    if red.set != green.set:
        moved = moved_packages(red, green, pins)
        kind = Kind.VERSIONS
        change = ", ".join(map(change_text, moved)) if len(moved) <= FEW else f"versions as in {green.set}"
        steps_of_user = (*moved, *different)
    else:
        kind = kind_of(different, red)
        change = ", ".join(map(change_text, different))
        steps_of_user = different
    return ProvenFix(
        change=change,
        because=because,
        kind=kind,
        red=red.cell,
        green=(green.cell,),
        device=device,
        hardware=green.hardware,
        measured=f"{green.started:%Y-%m-%d}",
        typed=tuple(typed_lines(steps_of_user)),
        options=tuple(option_texts(different)),
    )


def typed_lines(changes: Sequence[Change]) -> Iterator[str]:
    """Yield what a user types for some changes: arguments under their upstream names, and one pip command."""
    pins = [f'"{each.name}=={each.new}"' for each in changes if each.name in PACKAGES and each.new != ""]
    if pins:
        yield f"pip install {' '.join(pins)}"
    yield from (
        in_code(each.name, each.new) for each in changes if each.name in names() and not isinstance(each.new, float)
    )


def option_texts(changes: Sequence[Change]) -> Iterator[str]:
    yield from (f"{each.name}={each.new}" for each in changes if each.name in names())


def from_search(remedy: Remedy, device: str) -> ProvenFix:
    """Return the fix that a search found for a red cell."""
    return ProvenFix(
        change=", ".join(map(change_text, remedy.fix.changes)),
        because="",
        kind=remedy.fix.kind,
        red=str(CellKey(remedy.fix.set, remedy.fix.case)),
        green=(remedy.green,),
        device=device,
        hardware=remedy.found.hardware,
        measured=f"{remedy.found.generated:%Y-%m-%d}",
        typed=tuple(typed_lines(remedy.fix.changes)),
        options=tuple(option_texts(remedy.fix.changes)),
    )


def ordered(
    fixes: Iterable[ProvenFix], versions: Mapping[str, str], pins: Mapping[str, Mapping[str, str]]
) -> tuple[ProvenFix, ...]:
    """Return each fix once, with all its green cells: settings first, then the versions nearest to the user's."""
    age = {key: number for number, key in enumerate(pins)}  # oldest first

    def like(fix: ProvenFix) -> tuple[int, int]:
        key = CellKey.parse(fix.green[0]).set
        return -closeness(pins.get(key, {}), versions), -age.get(key, 0)

    def rank(fix: ProvenFix) -> tuple[bool, int, int, int, int]:
        close, young = like(fix)
        return fix.device == "cpu", PREFERRED.index(fix.kind), close, fix.change.count(","), young

    alike: dict[tuple[Kind, str, str], list[ProvenFix]] = {}
    for fix in fixes:
        description = fix.because or fix.change if fix.kind is Kind.VERSIONS else fix.change or fix.because
        alike.setdefault((fix.kind, description, fix.device), []).append(fix)
    merged = []
    for each in alike.values():
        best = sorted(each, key=like)
        because = next((fix.because for fix in best if fix.because), "")
        green = dict.fromkeys(cell for fix in best for cell in fix.green)
        merged.append(replace(best[0], because=because, green=tuple(green)))
    return tuple(sorted(merged, key=rank))


def closeness(pins: Mapping[str, str], versions: Mapping[str, str]) -> int:
    """Return the number of packages with the same minor release."""
    return sum(1 for name, version in versions.items() if name in pins and minor(pins[name]) == minor(version))


def minor(version: str) -> tuple[int, ...]:
    return Version(version).release[:2]
