"""Cells that execute a changed file come first, and as many run as the time allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.case import case
from matrix.environments.linked_environment import InstalledPackage
from matrix.run.timings import Timings
from reports.commands.runs.pr_cells import changed_files, choose, executing_cases

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO, THREE = (case("chosen", "any", method=method) for method in ("lora", "dora", "vera"))
PAST = Timings(cells={ONE.id: 30.0, TWO.id: 30.0, THREE.id: 30.0}, overhead_s=10.0)


def ids(executing: frozenset[str] | None, minutes: float | None, *known: str) -> list[str]:
    cases = (ONE, TWO, THREE)
    found = choose(cases, executing=executing, minutes=minutes, past=PAST, workers=1, known=frozenset(known))
    assert found.left_out == 3 - len(found.cases)
    return [each.id for each in found.cases]


def test_without_a_limit_every_case_runs_in_its_order() -> None:
    assert ids(None, None) == [ONE.id, TWO.id, THREE.id]


def test_cases_that_execute_a_changed_file_come_first() -> None:
    assert ids(frozenset({THREE.id}), None) == [THREE.id, ONE.id, TWO.id]


def test_cases_that_do_not_fit_into_the_time_are_left_out() -> None:
    assert ids(frozenset({THREE.id}), 2.5) == [THREE.id, ONE.id]  # two sides of 10 s and two cells


def test_cases_with_a_known_base_side_take_half_the_time() -> None:
    assert ids(None, 1.7, ONE.id, TWO.id, THREE.id) == [ONE.id, TWO.id, THREE.id]
    assert ids(None, 1.7) == [ONE.id]


def test_one_case_runs_however_short_the_time_is() -> None:
    assert ids(None, 0.01) == [ONE.id]


def test_lines_that_were_never_measured_are_unknown(tmp_path: Path) -> None:
    assert executing_cases("2026-11", frozenset({"peft/a.py"}), cache=tmp_path, device="cpu") is None


def test_the_cases_that_executed_a_changed_file_are_known_from_measured_lines(tmp_path: Path) -> None:
    lines = tmp_path / "lines" / "cpu" / "lines.jsonl"
    lines.parent.mkdir(parents=True)
    record = '{"set": "2026-11", "case": "%s", "root": "r", "files": {"peft/%s.py": "1-3"}}\n'
    lines.write_text(record % ("one", "a") + record % ("two", "b"))
    assert executing_cases("2026-11", frozenset({"peft/a.py"}), cache=tmp_path, device="cpu") == frozenset({"one"})


def test_files_of_other_content_and_files_of_one_side_are_changed(tmp_path: Path) -> None:
    site, new = tmp_path / "lib/python3.11/site-packages", tmp_path / "new"
    for folder in (site, new):
        folder.mkdir(parents=True)
        for name in ("same.py", "other.py"):
            (folder / name).write_text(name)
    (new / "other.py").write_text("changed")
    (new / "added.py").write_text("")
    files = (("same.py",), ("other.py",), ("added.py",))
    package = InstalledPackage(name="peft", version="1", folder=new, files=files, requires=())
    assert changed_files([package], tmp_path) == {"other.py", "added.py"}
