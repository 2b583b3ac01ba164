"""A sample takes each package in turn, and gives each mutant cells that execute it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cases.injection.mutant_suite import mutated_case
from cases.space.renamed import current_case_id
from cases.suite import CASES
from matrix.errors import UserError
from matrix.experiments.cell_choice import CellChoice
from matrix.experiments.executed_lines import TracedCell
from matrix.experiments.mutant_sample import Sample, again, draw, hand_written

if TYPE_CHECKING:
    from pathlib import Path

FAST, SLOW = "train-lora-single-fp32", "train-lora-ddp-bf16"
CHOICE = CellChoice(most=3)
PEFT, TORCH = "peft/peft_model.py", "torch/optim/sgd.py"
SOURCE = "def f(x, y):\n    if x:\n        return x * y\n    return x + y\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of packages."""
    for name in (PEFT, TORCH):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(SOURCE)
    return tmp_path


def a_cell(root: Path, case: str = FAST, **files: set[int]) -> TracedCell:
    lines = {name: frozenset(files.get(name.partition("/")[0], {2, 4})) for name in (PEFT, TORCH)}
    return TracedCell(case=case, seconds=1.0, root=str(root), files=lines)


def a_draw(root: Path, count: int = 100, seed: int = 0, files: str = "", **lines: set[int]) -> Sample:
    return draw([a_cell(root, FAST, **lines)], CASES, count=count, seed=seed, choice=CHOICE, files=files)


def test_packages_take_turns(root: Path) -> None:
    packages = [mutant.package for mutant, _ in a_draw(root).mutants]
    assert packages[:4] == ["peft", "torch", "peft", "torch"]


def test_a_larger_sample_keeps_the_mutants_of_a_smaller_one(root: Path) -> None:
    assert a_draw(root, 7).mutants[:3] == a_draw(root, 3).mutants


def test_another_seed_draws_others(root: Path) -> None:
    assert a_draw(root, 4, seed=1).mutants != a_draw(root, 4, seed=2).mutants


def test_only_executed_code_is_mutated(root: Path) -> None:
    sample = a_draw(root, peft={2}, torch=set())
    assert {(mutant.file, mutant.line) for mutant, _ in sample.mutants} == {(PEFT, 2)}
    assert [(each.file, each.covered < each.generated) for each in sample.files] == [(PEFT, True), (TORCH, True)]


def test_files_can_be_chosen(root: Path) -> None:
    assert {mutant.file for mutant, _ in a_draw(root, files="torch/optim/*").mutants} == {TORCH}


def test_a_removed_environment_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the environment was removed"):
        a_draw(tmp_path / "gone")


def test_mutants_run_again_by_their_ids(root: Path) -> None:
    (one, _), (other, _) = a_draw(root, count=2).mutants
    sample = again({one.id, "gone"}, [a_cell(root)], CASES, choice=CHOICE)
    assert sample.mutants == ((one, (FAST,)),)
    assert sample.rejected == {"gone": "this version has no such code"}
    assert other.id != one.id


def written(root: Path, **entry: Any) -> Path:
    row = {"id": "mine", "file": PEFT, "function": "f", "old": "x + y", "new": "x - y", **entry}
    (root / "mutants.json").write_text(json.dumps([row]))
    return root / "mutants.json"


def test_a_hand_written_mutant_runs_where_its_line_is_executed(root: Path) -> None:
    cells = [a_cell(root, peft={3}), a_cell(root, SLOW, peft={4})]
    ((mutant, names),) = hand_written(written(root), cells, CASES, choice=CHOICE).mutants
    assert (mutant.name, mutant.where, mutant.line, names) == ("mine", "f", 4, (SLOW,))


def test_the_words_of_a_name_do_not_become_those_of_a_case(root: Path) -> None:
    """Stored case ids replace the former names of options, such as ``clip``."""
    ((mutant, _),) = hand_written(written(root, id="ac-clip"), [a_cell(root)], CASES, choice=CHOICE).mutants
    mutated = mutated_case(CASES[FAST], mutant.id).id
    assert current_case_id(mutated) == mutated


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"file": "peft/none.py"}, "this version has no peft/none.py"),
        ({"function": "g"}, f"{PEFT} has no function g"),
        ({"old": "x / y"}, "f has the text to replace 0 times"),
        ({"old": "x"}, "f has the text to replace 4 times"),
        ({"new": "(x + y)"}, "the edit does not compile, or changes no code"),
    ],
)
def test_a_hand_written_mutant_that_does_not_fit_is_rejected(root: Path, entry: Any, reason: str) -> None:
    sample = hand_written(written(root, **entry), [a_cell(root)], CASES, choice=CHOICE)
    assert (sample.mutants, sample.rejected) == ((), {"mine": reason})


@pytest.mark.parametrize("text", ["{", "{}", '[{"file": "x"}]'])
def test_a_file_that_is_no_list_of_mutants_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "mutants.json").write_text(text)
    with pytest.raises(UserError, match="--mutants"):
        hand_written(tmp_path / "mutants.json", [], CASES, choice=CHOICE)
