"""Proves the fixes that earlier searches found again, on today's code and on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.search.finder import FixSearch
from matrix.search.fixes import ALONE, Kind
from matrix.search.target import advice, other_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.search.fixes import Fix
    from matrix.search.target import FixTask, Neighbour


@dataclass(kw_only=True)
class EarlierFixes(FixSearch):
    """Tries the earlier fix of each task, and nothing else. ``known`` has these fixes by red cell.

    A fix that cannot run is not among the results, and ``left_out`` says why: that it failed was not shown.
    """

    known: Mapping[str, Fix] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # reasons by red cell

    def run(self) -> tuple[Fix, ...]:
        for kind in Kind:
            for tasks in self.open_tasks() if kind in self.kinds else ():
                self.prove_again(kind, [task for task in tasks if self.known[task.cell].kind is kind])
        return self.fixes(task for task in self.tasks if task.cell not in self.left_out)

    def prove_again(self, kind: Kind, tasks: list[FixTask]) -> None:
        found = {task: self.green_cell(task, self.known[task.cell]) for task in tasks}
        candidates = self.affordable({task: [each] if each else [] for task, each in found.items()})
        for task in tasks:
            fix = self.known[task.cell]
            task.notes.append(f"{ALONE}; {fix.within}")
            if not candidates[task]:
                self.left_out[task.cell] = task.skipped.get(fix.to_set, "no longer known")
        self.try_candidates(kind, "", {task: each for task, each in candidates.items() if each})

    def green_cell(self, task: FixTask, fix: Fix) -> Neighbour | None:
        """The green cell of a fix; None if today's grid, table or package index does not have it."""
        if fix.kind is Kind.VERSIONS:
            known = next((each for each in self.table if each.key == fix.to_set), None)
            pins = {each.name: str(each.new) for each in fix.changes}
            return other_set(task, known) if known else self.derived(task, pins)
        if [each.name for each in fix.changes] == ["call"]:
            case = self.cases.get(fix.to_case)
            return advice(task, case) if case else None
        return self.neighbour(task, {each.name: each.new for each in fix.changes})
