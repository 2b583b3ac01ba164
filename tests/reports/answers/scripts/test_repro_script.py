"""A red cell becomes a short script with exact pins, or a message with the reason why not."""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cases.grid import profiles
from cases.space.options import names
from cases.space.verdict import RED
from matrix.errors import UserError
from reports.answers.scripts.python_text import bound_names, used_names
from reports.answers.scripts.repro_cells import pins_of
from reports.answers.scripts.repro_coverage import ELSEWHERE, UNCOVERED
from reports.answers.scripts.repro_script import Reproducer, reproducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from matrix.run.outcome import Outcome
    from reports.results.grid import Grid

# As PEP 723 gives it.
METADATA = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
DEFAULT = {case.id for case in profiles.PROFILES["default"].cases}
OURS = {"cases", "matrix", "reports", "ftmatrix"}
COVERED = 0.95  # of the red cells of the default profile


def red(matrix: Grid) -> Iterator[Outcome]:
    return (outcome for outcome in matrix.outcomes if outcome.verdict in RED)


@pytest.fixture(scope="session")
def scripts(published: Grid) -> dict[str, Reproducer | str]:
    """The script of every red cell, or the reason why it has none."""
    return {outcome.cell: script_or_sentence(outcome, published) for outcome in red(published)}


def script_or_sentence(outcome: Outcome, matrix: Grid) -> Reproducer | str:
    try:
        return reproducer(outcome, pins_of(outcome, matrix))
    except UserError as error:
        return str(error)


@pytest.fixture(scope="session")
def made(scripts: dict[str, Reproducer | str]) -> list[Reproducer]:
    return [each for each in scripts.values() if isinstance(each, Reproducer)]


def metadata(text: str) -> dict[str, Any]:
    (found,) = METADATA.finditer(text)
    assert found["type"] == "script"
    return tomllib.loads("".join(line[2:] for line in found["content"].splitlines(keepends=True)))


@dataclass(frozen=True, kw_only=True)
class ScriptNames:
    """The names in a script; ``functions`` are those at the top level, ``modules`` those that it imports from."""

    cell: str
    used: set[str]
    bound: set[str]
    imported: set[str]
    modules: set[str]
    functions: set[str]


@pytest.fixture(scope="session")
def names_of_scripts(made: list[Reproducer]) -> list[ScriptNames]:
    return [script_names(each) for each in made]


def script_names(script: Reproducer) -> ScriptNames:
    tree = ast.parse(script.text)
    nodes = tuple(ast.walk(tree))
    return ScriptNames(
        cell=script.cell,
        used=used_names(nodes),
        bound=bound_names(nodes),
        imported=imported(nodes),
        modules=modules(nodes),
        functions={node.name for node in tree.body if isinstance(node, ast.FunctionDef)},
    )


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return found


def modules(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


def test_nearly_every_red_cell_of_the_default_profile_has_a_script(
    scripts: dict[str, Reproducer | str], published: Grid
) -> None:
    cells = [outcome.cell for outcome in red(published) if outcome.case in DEFAULT]
    without = [cell for cell in cells if isinstance(scripts[cell], str)]
    assert cells
    assert len(without) <= (1 - COVERED) * len(cells), without


def test_the_message_of_a_cell_without_a_script_names_the_cell(scripts: dict[str, Reproducer | str]) -> None:
    sentences = {cell: each for cell, each in scripts.items() if isinstance(each, str)}
    assert [cell for cell, each in sentences.items() if not each.startswith(cell) or "\n" in each] == []


def test_every_script_is_under_120_lines_of_at_most_120_columns(made: list[Reproducer]) -> None:
    texts = {each.cell: each.text.splitlines() for each in made}
    assert [cell for cell, lines in texts.items() if len(lines) >= 120 or max(map(len, lines)) > 120] == []


def test_every_script_compiles(made: list[Reproducer]) -> None:
    for each in made:
        compile(each.text, each.name, "exec")


def test_every_script_imports_the_names_that_it_uses_and_no_others(names_of_scripts: list[ScriptNames]) -> None:
    known = set(dir(builtins)) | {"__name__"}
    wrong = {each.cell: each.used - each.bound - known ^ each.imported for each in names_of_scripts}
    assert {cell: names for cell, names in wrong.items() if names} == {}


def test_every_function_of_a_script_is_called(names_of_scripts: list[ScriptNames]) -> None:
    assert [each.cell for each in names_of_scripts if not each.functions <= each.used] == []


def test_no_script_needs_the_harness(names_of_scripts: list[ScriptNames]) -> None:
    assert [each.cell for each in names_of_scripts if each.modules & OURS] == []


def test_every_pin_is_exact_and_from_the_lock(made: list[Reproducer]) -> None:
    for each in made:
        pins = [Requirement(line) for line in metadata(each.text)["dependencies"]]
        assert {pin.name: str(pin.specifier) for pin in pins} == {
            pin.name: f"=={each.pins.versions[pin.name]}" for pin in pins
        }, each.cell


def test_a_script_requires_the_packages_that_it_imports(
    made: list[Reproducer], names_of_scripts: list[ScriptNames]
) -> None:
    standard = {"functools", "os", "tempfile"}
    for each, found in zip(made, names_of_scripts, strict=True):
        required = {Requirement(line).name for line in metadata(each.text)["dependencies"]}
        assert found.modules - standard <= required, each.cell


def test_a_script_requires_the_python_of_its_set(make: Callable[[str], Reproducer]) -> None:
    script = make("2024-06__train-lora-fsdp1-flatparams-fp32")
    assert script.pins.python in SpecifierSet(metadata(script.text)["requires-python"])


def test_a_script_stops_at_the_phase_of_the_failure(make: Callable[[str], Reproducer]) -> None:
    """Wrapping the model raises, so the script does not train."""
    text = make("2026-11__train-lora-fsdp1-bf16").text
    assert "FullyShardedDataParallel(" in text
    assert "backward" not in text


def test_a_script_is_written_for_its_versions(make: Callable[[str], Reproducer]) -> None:
    case = "train-lora-fsdp1-use_orig_params_false-fp32"
    assert "torch_dtype=" in make(f"2024-06__{case}").text
    assert "torch_dtype=" not in make(f"2026-11__{case}").text


def test_a_silent_failure_is_asserted_against_the_cells_bound(make: Callable[[str], Reproducer]) -> None:
    text = make("2025-12__save_reload-vera-single-fp32").text
    assert "assert off <= 5.36e-07" in text
    assert "Nothing is raised, but the reloaded adapter gives other logits." in text


def test_a_script_for_ranks_starts_them_itself(make: Callable[[str], Reproducer]) -> None:
    assert "mp.spawn(main, (folder,), RANKS)" in make("2026-11__train-lora-fsdp1-bf16").text
    assert "spawn" not in make("2025-12__save_reload-vera-single-fp32").text


@pytest.mark.parametrize("flow", ELSEWHERE)
def test_the_message_of_a_flow_without_a_script_has_the_reason(
    flow: str, build_outcome: Callable[..., Outcome], published: Grid
) -> None:
    pins = pins_of(next(red(published)), published)
    outcome = build_outcome(
        verdict="fail", options={"flow": flow, "call": "its_name"}, error={"type": "E", "message": ""}, phase="load"
    )
    with pytest.raises(UserError, match=f"no script for flow={flow}: "):
        reproducer(outcome, pins)


def test_the_message_names_an_option_that_is_not_covered(
    build_outcome: Callable[..., Outcome], published: Grid
) -> None:
    pins = pins_of(next(red(published)), published)
    options = {"flow": "train", "torch_compile": True}
    outcome = build_outcome(verdict="fail", options=options, error={"type": "E", "message": ""}, phase="forward")
    with pytest.raises(UserError, match="torch_compile=True is not covered"):
        reproducer(outcome, pins)


def test_ranks_that_share_a_gpu_are_not_covered(build_outcome: Callable[..., Outcome], published: Grid) -> None:
    pins = pins_of(next(red(published)), published)
    outcome = build_outcome(verdict="fail", options={"flow": "train"}, facts={"device": "cuda-gloo"})
    with pytest.raises(UserError, match="no script for ranks that share a GPU; run the cell on cpu or cuda"):
        reproducer(outcome, pins)


def test_a_training_that_continues_from_a_checkpoint_is_not_covered(
    build_outcome: Callable[..., Outcome], published: Grid
) -> None:
    """The script would train without the stop and show nothing."""
    pins = pins_of(next(red(published)), published)
    outcome = build_outcome(
        verdict="fail",
        options={"flow": "resume", "method": "adalora"},
        error={"type": "KeyError", "message": ""},
        phase="optimizer",
        metrics={"optimizer_s": 0.1, "resume_s": 0.1},
    )
    with pytest.raises(UserError, match="flow=resume is not covered"):
        reproducer(outcome, pins)


def test_uncovered_options_are_options() -> None:
    assert {each.option for each in UNCOVERED} <= set(names())
