"""A sample takes each package in turn, and gives each mutant cells that execute it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cases.injection.mutant_suite import mutated_case
from cases.space.renamed import current_case_id
from cases.suite import CASES
from matrix.errors import UserError
from matrix.experiments.executed_lines import TracedCell
from matrix.experiments.mutant_sample import CellChoice, Coverage, Sample, again, chosen_cells, draw, hand_written

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


def chosen(most: int, *names: str, locate: bool = False, **focus: float) -> tuple[str, ...]:
    """The cells for a mutant that these execute; ``focus`` has the cells of one call each, by the call's name."""
    calls = {f"api-{name}": share for name, share in focus.items()}
    return chosen_cells({**dict.fromkeys(names, 0.1), **calls}, CASES, CellChoice(most=most, locate=locate))


def test_the_fastest_float32_cell_comes_first() -> None:
    names = ["train-lora-single-bf16", "train-lora-single-fp32", "train-lora-ddp-bf16"]
    assert chosen(1, *names) == (names[1],)
    assert chosen(3, *names[::2]) == (names[0], names[2])


def test_a_cell_with_a_reference_of_each_module_comes_first_to_locate() -> None:
    names = ["api-use_two_lokr", "train-lora-ddp-bf16"]
    assert chosen(1, *names) == (names[0],)
    assert chosen(1, *names, locate=True) == (names[1],)
    assert chosen(1, names[0], locate=True) == (names[0],)


def test_the_next_cell_has_the_most_options_that_the_first_has_not() -> None:
    rope = "train-full-rope_scaling_yarn-single-fp32"
    names = ["train-full-single-fp32", "train-full-single-bf16", rope, "train-lora-ddp-bf16"]
    assert chosen(2, *names) == (names[0], names[3])


def test_a_call_of_another_module_comes_before_others() -> None:
    names = ["api-use_two_lokr", "api-use_two_loha", "api-dpo_ddp"]
    assert chosen(2, *names) == (names[0], names[2])
    assert chosen(9, *names) == (names[0], names[2], names[1])


def test_every_second_further_cell_is_the_one_that_does_little_else() -> None:
    found = chosen(3, "train-full-single-fp32", use_two_lokr=0.2, dpo_ddp=0.1, use_two_loha=0.9, kto_ddp=0.3)
    assert found == ("train-full-single-fp32", "api-use_two_lokr", "api-use_two_loha")


def test_the_focus_is_the_share_of_the_file_in_what_a_cell_executes(root: Path) -> None:
    coverage = Coverage.of([a_cell(root, FAST, peft={2}, torch={1, 2, 3}), a_cell(root, SLOW, peft={2}, torch=set())])
    mutant = next(mutant for mutant, _ in a_draw(root, files="peft/*").mutants if mutant.line == 2)
    assert coverage.cells_of(mutant) == {FAST: 0.25, SLOW: 1.0}


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
