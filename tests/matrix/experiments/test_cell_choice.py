"""The cells for a mutant differ in what they execute near it, in their options, their focus, and their words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.suite import CASES
from matrix.experiments.cell_choice import CellChoice, Coverage, Reach, words_of
from matrix.experiments.executed_lines import TracedCell
from matrix.experiments.mutants import StackFile, generate

if TYPE_CHECKING:
    from pathlib import Path


def chosen(most: int, *names: str, locate: bool = False, **focus: float) -> tuple[str, ...]:
    """The cells for a mutant that these execute; ``focus`` has the cells of one call each, by the call's name."""
    calls = {f"api-{name}": share for name, share in focus.items()}
    reaches = {name: Reach(share) for name, share in {**dict.fromkeys(names, 0.1), **calls}.items()}
    return CellChoice(most=most, locate=locate).cells(reaches, CASES)


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


def test_a_later_cell_is_the_one_that_does_little_else() -> None:
    found = chosen(3, "train-full-single-fp32", use_two_lokr=0.2, dpo_ddp=0.1, use_two_loha=0.9, kto_ddp=0.3)
    assert found == ("train-full-single-fp32", "api-use_two_lokr", "api-use_two_loha")


def test_lines_near_the_mutant_that_no_cell_before_executes_come_first() -> None:
    reaches = {
        "train-full-single-fp32": Reach(0.5, {10: 0}),
        "api-use_two_lokr": Reach(0.9, {10: 0}),
        "api-dpo_ddp": Reach(0.1, {10: 0, 20: 10, 21: 11, 22: 12}),
        "api-kto_ddp": Reach(0.1, {10: 0, 11: 1}),
    }
    found = CellChoice(most=9).cells(reaches, CASES)
    assert found == ("train-full-single-fp32", "api-kto_ddp", "api-use_two_lokr", "api-dpo_ddp")
    without = {name: Reach(each.focus) for name, each in reaches.items()}
    assert CellChoice(most=2).cells(without, CASES) != found[:2]


def test_the_words_of_a_mutant_are_those_of_its_file_function_and_lines() -> None:
    source = StackFile(
        "peft/tuners/a.py", b"class LoraLayer:\n    def scales(self, s, use_rslora):\n        return s * 2\n"
    )
    mutant = next(each for each in generate(source) if each.line == 3)
    assert words_of(mutant) >= {"peft", "tuner", "lora", "layer", "scale", "retur"}
    assert "" not in words_of(mutant)


def test_of_the_words_of_a_mutant_a_rare_one_counts_most() -> None:
    names = [
        "train-full-single-fp32",
        "api-dpo_ddp",
        "api-kto_ddp",
        "api-use_two_lokr",
        "api-use_two_loha",
        "api-rslora_scaling",
    ]
    reaches = {name: Reach(1 / number, {}) for number, name in enumerate(names, start=1)}
    words = frozenset({"ddp", "rslor"})
    with_words, without = (CellChoice(most=4).cells(reaches, CASES, each) for each in (words, frozenset()))
    assert with_words[3] == "api-rslora_scaling"
    assert without[3] != "api-rslora_scaling"


def test_a_reach_has_the_share_of_the_file_and_the_lines_of_the_function(tmp_path: Path) -> None:
    source = StackFile("peft/a.py", b"import os\n\ndef f(x):\n    if x:\n        x += 1\n    return x\n")
    mutant = next(each for each in generate(source) if each.line == 4)
    files = ({"peft/a.py": {4, 5, 6}, "torch/b.py": {1}}, {"peft/a.py": {1, 4, 6}}, {"peft/a.py": {6}})
    cells = [
        TracedCell(case=f"c{number}", seconds=1.0, root=str(tmp_path), files={k: frozenset(v) for k, v in each.items()})
        for number, each in enumerate(files)
    ]
    assert Coverage.of(cells).reaches(mutant, source) == {
        "c0": Reach(0.75, {4: 0, 5: 1, 6: 2}),
        "c1": Reach(1.0, {4: 0, 6: 2}),
    }
