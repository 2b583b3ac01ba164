"""Chooses the cells of ``ftmatrix pr``: first those that execute a changed file, as many as the time allows."""

from __future__ import annotations

from dataclasses import dataclass
from filecmp import cmp
from typing import TYPE_CHECKING

from matrix.environments.environment import site_packages
from matrix.environments.linked_environment import installed_packages
from matrix.experiments import executed_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.environments.linked_environment import InstalledPackage
    from matrix.run.timings import Timings


@dataclass(frozen=True, kw_only=True)
class ChosenCases:
    """The cases to run, the number of them that execute a changed file, and the number that the time leaves out.

    ``executing`` is None if the lines that cells execute were never measured.
    """

    cases: tuple[Case, ...]
    executing: int | None = None
    left_out: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"{self.left_out} cells are left out, because they do not fit into --minutes",) if self.left_out else ()


def choose(
    cases: Sequence[Case],
    *,
    executing: frozenset[str] | None,
    minutes: float | None,
    past: Timings,
    workers: int,
    known: frozenset[str],
) -> ChosenCases:
    """The cases to run, at least one.

    Args:
        cases: of the profile.
        executing: those that execute a changed file; None if that is unknown.
        minutes: the time for all cells; None for no limit.
        past: past timings on this machine; other cells count as usual ones of their flow.
        workers: the number of cells that run at once.
        known: the cases whose base side is known, so that only the new side runs.
    """
    ordered = sorted(cases, key=lambda case: executing is not None and case.id not in executing)
    kept: list[Case] = []
    sides = 1 if all(case.id in known for case in cases) else 2
    remaining = float("inf") if minutes is None else minutes * 60 - sides * past.overhead_s
    for case in ordered:
        remaining -= (1 if case.id in known else 2) * past.seconds(case) / workers
        if remaining >= 0 or not kept:
            kept.append(case)
    return ChosenCases(
        cases=tuple(kept),
        executing=None if executing is None else sum(case.id in executing for case in kept),
        left_out=len(ordered) - len(kept),
    )


def executing_cases(key: str, changed: frozenset[str], *, cache: Path, device: str) -> frozenset[str] | None:
    """The cases of a set that executed a changed file when `ftmatrix mutate` measured them; None if it never did."""
    stored = executed_lines.stored_lines(cache / "lines" / device / executed_lines.FILE, key)
    if not stored:
        return None
    return frozenset(case for case, record in stored.items() if not changed.isdisjoint(record["files"]))


def changed_files(packages: Iterable[InstalledPackage], root: Path) -> frozenset[str]:
    """The files of packages that differ from those in an environment, relative to its site-packages."""
    site = site_packages(root)
    known = installed_packages(site)
    found: set[str] = set()
    for each in packages:
        before = known[each.name].files if each.name in known else ()
        found.update("/".join(parts) for parts in {*before, *each.files} if differs(each.folder, site, parts))
    return frozenset(path for path in found if ".dist-info/" not in path)


def differs(new: Path, old: Path, parts: tuple[str, ...]) -> bool:
    paths = new.joinpath(*parts), old.joinpath(*parts)
    return not all(path.is_file() for path in paths) or not cmp(*paths, shallow=False)
