"""Which version set to pin: the newest on which everything needed is green, and what shows it.

*Everything needed is green* means, of every need: the set is green for it as it is, or with a setting, in the sense of
``standing``: the cells with the named options, and the plain values of those that are left free, ran on that very set.
A need is about one flow, training if it names none; who needs more (training and merging, say) gives several needs.
An unknown, skipped or blocked cell fulfils nothing, and a flaky one is not green.

Newer sets come first, also where they need a setting that an older one does not: the setting is told, with the plain
cells that are red without it, and the newest set that needs none is told as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from matrix.errors import UserError
from matrix.keys import CellKey, without_local
from matrix.versions import locks
from matrix.versions import sets as known_sets
from matrix.versions.sets import PACKAGES
from reports.answers.support.query import check, parse
from reports.answers.support.status import NOT_RUN, Held, Known, Standing, newest_first
from reports.results.wording import headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.run.outcome import Outcome, SetRecord
    from matrix.versions.sets import VersionSet
    from reports.answers.support.query import Need
    from reports.results.grid import Grid

SHOWN: Final = 3  # other sets
CPU: Final = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A set, and how each need holds on it."""

    column: SetRecord
    held: tuple[Held, ...]
    outcomes: tuple[Outcome, ...]  # of the cells that show it

    @property
    def key(self) -> str:
        return self.column.key

    @property
    def fulfils(self) -> bool:
        return all(each.good for each in self.held)

    @property
    def as_it_is(self) -> bool:
        return all(each.standing is Standing.GREEN for each in self.held)

    @property
    def standing(self) -> Standing:
        """Of all needs together: the worst, and red before unknown, for one that fails is enough."""
        if self.fulfils:
            return Standing.GREEN if self.as_it_is else Standing.SETTING
        red = any(each.standing is Standing.RED for each in self.held)
        return Standing.RED if red else Standing.UNKNOWN

    @property
    def unmet(self) -> tuple[Held, ...]:
        return tuple(each for each in self.held if not each.good)

    @property
    def settings(self) -> str:
        """What has to be set, of every need that is not met as it is."""
        told = dict.fromkeys(each.greens[0].words for each in self.held if each.standing is Standing.SETTING)
        return "; ".join(told)

    @property
    def hardware(self) -> str:
        return "; ".join(dict.fromkeys(outcome.hardware for outcome in self.outcomes))

    @property
    def measured(self) -> str:
        """The day, or the first and the last."""
        days = sorted({f"{outcome.started:%Y-%m-%d}" for outcome in self.outcomes})
        return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""

    def as_json(self) -> dict[str, Any]:
        return {
            "set": self.key,
            "as_of": self.column.as_of,
            "python": self.column.python,
            "pins": self.column.pins,
            "lock": self.column.lock,
            "as_it_is": self.as_it_is,
            "settings": self.settings,
            "needs": [held_json(each) for each in self.held],
            "cells": [
                {"cell": each.cell, "hardware": each.hardware, "date": f"{each.started:%Y-%m-%d}"}
                for each in self.outcomes
            ],
        }


def held_json(held: Held) -> dict[str, Any]:
    return {
        "need": held.need.text,
        "terms": held.need.terms,
        "standing": held.standing.value,
        "settings": dict(held.greens[0].settings) if held.good else {},
        "cells": [str(CellKey(held.set, case)) for case in held.proof],
        "avoid": [str(CellKey(held.set, case)) for case in held.avoid] if held.good else [],
        "reason": held.reason,
    }


def obstacles_json(candidate: Candidate) -> list[dict[str, Any]]:
    """The needs that a set does not meet, with the cells that went wrong."""
    said = {outcome.case: outcome for outcome in candidate.outcomes}
    return [
        {
            "set": candidate.key,
            "need": held.need.text,
            "standing": held.standing.value,
            "reason": held.reason,
            "cells": [
                {"cell": str(CellKey(held.set, case)), "verdict": said[case].verdict.value, "why": headline(said[case])}
                for case in held.proof
            ],
        }
        for held in candidate.unmet
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What would have to be given up, and the newest set that then fulfils the rest; ``key`` is empty if none does."""

    gives_up: str
    key: str
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """``best`` is the newest set that fulfils all, ``others`` the next ones, ``as_it_is`` the newest without settings.

    Without a best one, ``nearest`` is the newest set among those that fulfil most, ``in_the_way`` is what every set
    lacks on which any of it was tried, and ``hints`` say what to give up. ``measured`` is False where nothing at all
    was measured on the device; ``on_cpu`` is what the CPU's results say then, which is no answer for a GPU.
    """

    needs: tuple[Need, ...]
    have: tuple[Requirement, ...]
    device: str
    considered: int
    measured: bool = True
    best: Candidate | None = None
    others: tuple[Candidate, ...] = ()
    as_it_is: Candidate | None = None
    nearest: Candidate | None = None
    in_the_way: tuple[Candidate, ...] = ()
    hints: tuple[Hint, ...] = ()
    unmeasured: tuple[Need, ...] = ()
    on_cpu: Recommendation | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "device": self.device,
            "measured": self.measured,
            "needs": [{"need": each.text, "terms": each.terms} for each in self.needs],
            "have": [str(each) for each in self.have],
            "best": self.best and self.best.as_json(),
            "others": [each.as_json() for each in self.others],
            "as_it_is": self.as_it_is and self.as_it_is.as_json(),
            "nearest": self.nearest and self.nearest.as_json(),
            "in_the_way": [each for candidate in self.in_the_way for each in obstacles_json(candidate)],
            "hints": [{"gives_up": each.gives_up, "set": each.key} for each in self.hints],
            "unmeasured": [each.terms for each in self.unmeasured],
            "on_cpu": self.on_cpu and self.on_cpu.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """A job that many have, in words."""

    job: str
    needs: tuple[str, ...]


USUAL: Final = (
    Usual(job="QLoRA on one GPU", needs=("qlora",)),
    Usual(job="QLoRA + FSDP2", needs=("qlora fsdp2",)),
    Usual(job="DoRA + FSDP", needs=("dora fsdp",)),
    Usual(job="8-bit + DDP", needs=("8-bit ddp",)),
    Usual(job="full fine-tuning + FSDP2", needs=("full fsdp2",)),
    Usual(job="adapters merged for serving", needs=("lora merge", "lora merge_reload")),
)


def recommended(known: Known, *, device: str) -> tuple[tuple[Usual, Recommendation], ...]:
    """For the usual jobs."""
    return tuple((each, recommend(known, tuple(map(parse, each.needs)), device=device)) for each in USUAL)


def recommend(known: Known, needs: Sequence[Need], have: Sequence[Requirement] = (), *, device: str) -> Recommendation:
    """The newest set that fulfils the needs and has the packages.

    Raises:
        UserError: there can be no case of a need.
    """
    everything = candidates(known, needs)
    fitting = [each for each in everything if has(each.column.pins, have)]
    good = [each for each in fitting if each.fulfils]
    found = Recommendation(needs=tuple(needs), have=tuple(have), device=device, considered=len(fitting))
    if not good:
        unmeasured = tuple(need for need in needs if not known.ways(need))
        nearest = max(fitting, key=lambda each: sum(held.good for held in each.held), default=None)
        partly = nearest if nearest is not None and any(held.good for held in nearest.held) else None
        return replace(
            found,
            nearest=partly,
            in_the_way=tuple(each for each in fitting if tried(each)) if len(unmeasured) < len(needs) else (),
            hints=hints(known, needs, have, everything),
            unmeasured=unmeasured,
        )
    plain = next((each for each in good if each.as_it_is), None)
    return replace(found, best=good[0], others=tuple(good[1 : SHOWN + 1]), as_it_is=None if plain is good[0] else plain)


def tried(candidate: Candidate) -> bool:
    """Whether a run says anything of the needs that the set does not meet."""
    return any(held.standing is Standing.RED or held.reason != NOT_RUN for held in candidate.unmet)


def recommend_on(
    device: str, grids: Mapping[str, Grid], needs: Sequence[Need], have: Sequence[Requirement] = ()
) -> Recommendation:
    """For a device. What was not measured there is unknown; what the CPU's results say is told apart, as theirs.

    Raises:
        UserError: there can be no case of a need.
    """
    if device in grids:
        found = recommend(Known(grids[device]), needs, have, device=device)
    else:
        for need in needs:
            check(need)
        found = Recommendation(needs=tuple(needs), have=tuple(have), device=device, considered=0, measured=False)
    if found.best is not None or device == CPU or CPU not in grids:
        return found
    return replace(found, on_cpu=recommend(Known(grids[CPU]), needs, have, device=CPU))


def candidates(known: Known, needs: Sequence[Need]) -> list[Candidate]:
    """Every set, the newest first."""
    held = [{each.set: each for each in known.held(need)} for need in needs]
    return [candidate(known, column, [each[column.key] for each in held]) for column in newest_first(known.sets)]


def candidate(known: Known, column: SetRecord, held: Sequence[Held]) -> Candidate:
    shown = dict.fromkeys(case for each in held for case in each.proof)
    outcomes = tuple(known.outcome(case, column.key) for case in shown)
    return Candidate(column=column, held=tuple(held), outcomes=outcomes)


def hints(
    known: Known, needs: Sequence[Need], have: Sequence[Requirement], everything: Sequence[Candidate]
) -> tuple[Hint, ...]:
    """What would do if one thing were given up: what is had, a whole need, or one option of one."""
    found: list[Hint] = []
    if have:
        found.append(Hint(gives_up=" ".join(f"--have {each}" for each in have), key=newest_good(everything, ())))
    if len(needs) > 1:
        for number, need in enumerate(needs):
            rest = [*needs[:number], *needs[number + 1 :]]
            found.append(Hint(gives_up=f"need {need.text}", key=newest_good(candidates(known, rest), have)))
    for number, need in enumerate(needs):
        for name in need.named:
            less = [*needs[:number], need.without(name), *needs[number + 1 :]]
            key = newest_good(candidates(known, less), have) if possible(known, need.without(name)) else ""
            instead = f", with {need.without(name).term(name)}"
            found.append(Hint(gives_up=need.term(name), key=key, instead=instead))
    return tuple(found)


def possible(known: Known, need: Need) -> bool:
    """Whether the rest of a need still makes sense: without ``strategy=fsdp1``, a wrap policy means nothing."""
    try:
        known.ways(need)
    except UserError:
        return False
    return True


def newest_good(found: Iterable[Candidate], have: Sequence[Requirement]) -> str:
    return next((each.key for each in found if each.fulfils and has(each.column.pins, have)), "")


def has(pins: Mapping[str, str], have: Iterable[Requirement]) -> bool:
    return all(each.specifier.contains(pins[each.name], prereleases=True) for each in have if each.name in pins)


def requirement(text: str) -> Requirement:
    """Read ``--have``, e.g. ``torch==2.8.0`` or ``peft>=0.15,<0.18``. The build (``2.8.0+cu128``) does not count.

    Raises:
        UserError: it is no requirement of one of the pinned packages.
    """
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        raise UserError(f"--have {text!r} is no requirement such as torch==2.8.0 or peft>=0.15,<0.18") from None
    if wanted.url or wanted.marker or wanted.extras:
        raise UserError(f"--have {text!r}: a name and versions would do, such as torch==2.8.0")
    wanted.name = canonicalize_name(wanted.name)
    if wanted.name not in PACKAGES:
        close = get_close_matches(wanted.name, PACKAGES, n=1)
        raise UserError(
            f"--have {text!r}: the sets pin {', '.join(PACKAGES)}" + (f"; did you mean {close[0]}?" if close else "")
        )
    wanted.specifier = SpecifierSet(",".join(without_local(str(each)) for each in wanted.specifier))
    return wanted


def lock_text(column: SetRecord, sets: Sequence[VersionSet] | None = None) -> str:
    """The hash-locked requirements that the set was measured with.

    Raises:
        UserError: they are not here, or others by now.
    """
    known = {each.key: each for each in (known_sets.load() if sets is None else sets)}
    lock = locks.read(known[column.key]) if column.key in known else None
    if lock is None:
        raise UserError(f"there is no lock of {column.key} here; `ftmatrix sets` lists the sets that have one")
    if column.lock and lock.digest != column.lock:
        raise UserError(
            f"the lock of {column.key} is {lock.digest} here, but {column.lock} was measured; "
            f"take the version of ftmatrix that measured it, or measure again: ftmatrix run --sets {column.key}"
        )
    return lock.text
