"""``ftmatrix map``: answers from the packaged map, and bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cases.imports.wire import Combination, CombinationResult
from matrix.api_map.measured import import_results, measure
from matrix.api_map.measured.plan import open_pairs
from matrix.api_map.query import ApiMap
from matrix.errors import UserError
from matrix.keys import without_local
from reports.cli import application

ROOT = Path(__file__).parents[3]

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typer.testing import Result

    from matrix.api_map.measured.combinations import PlannedCombination


def run(*words: str) -> Result:
    return CliRunner().invoke(application(["map"]), ["map", *words])


def test_the_releases_of_each_package_are_listed() -> None:
    assert "transformers" in run().stdout


def test_a_name_is_shown_with_its_releases_and_users() -> None:
    shown = run("name", "peft.prepare_model_for_int8_training").stdout
    assert "peft 0.4.0 to 0.9.0" in shown
    assert "trl 0.4.2 to 0.7.1 uses it at import" in shown


def test_a_name_that_never_existed_exits_with_1() -> None:
    found = run("name", "peft.NeverExisted")
    assert found.exit_code == 1
    assert "no release of peft in the map has peft.NeverExisted" in found.stdout


def test_an_answer_for_a_missing_name_imports_neither_pyarrow_nor_pandas(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("ImportError: cannot import name 'gone' from 'peft.utils' (/x)\npeft==0.17.0\n", encoding="utf-8")
    code = (
        "import sys\nfrom reports.cli import main\n"
        f"sys.argv = ['ftmatrix', 'explain', {str(log)!r}]\n"
        "try:\n    main()\nfinally:\n    print('pyarrow' in sys.modules, 'pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "False False"


def test_changes_are_json() -> None:
    found = json.loads(run("changes", "trl", "0.15.2", "0.16.0", "--json").stdout)
    assert {"path": "trl.SFTConfig", "parameter": "max_seq_length", "old": "1024", "new": "None"} in found["defaults"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("name", "numpy.bool"), "begins with no package of the map"),
        (("changes", "trl", "0.15.2", "9.9"), "trl 9.9: not in the map"),
        (("changes", "numpy", "1", "2"), "numpy: not in the map"),
        (("update", "--packages", "numpy"), "unknown package 'numpy'"),
    ],
)
def test_bad_input_is_one_sentence(words: tuple[str, ...], message: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, UserError)
    assert message in str(found.exception)


@pytest.fixture
def planned_combinations(monkeypatch: pytest.MonkeyPatch) -> list[PlannedCombination]:
    """Return the combinations that `map measure` would import with Python 3.12.1 and torch 2.15.0."""
    planned: list[PlannedCombination] = []

    def unpacked(plan: Iterable[PlannedCombination], _: object) -> list[Combination]:
        found = list(plan)
        planned.extend(found)
        return [
            Combination(versions={"transformers": each.versions["transformers"]}, folders=(), variants=(("1", "trl"),))
            for each in found
        ]

    def imported(found: Iterable[Combination], **_: object) -> list[CombinationResult]:
        return [
            CombinationResult(
                versions={**each.versions, "trl": "1"}, steps=(), python="3.12.1", torch="2.15.0", seconds=0
            )
            for each in found
        ]

    monkeypatch.setattr(measure, "environment_versions", lambda _: ("3.12.1", "2.15.0"))
    monkeypatch.setattr(measure, "environment_libraries", lambda *_: {})
    monkeypatch.setattr(measure.UnpackedWheels, "has", lambda *_: True)
    monkeypatch.setattr(measure, "unpacked", unpacked)
    monkeypatch.setattr(measure, "import_combinations", imported)
    return planned


def test_with_new_each_combination_has_a_pair_that_no_environment_measured(
    planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), "--count", "9", "--new")
    left = open_pairs(ApiMap(), import_results.load())
    assert (found.exit_code, len(planned_combinations)) == (0, 9)
    assert all(each.pairs & left for each in planned_combinations)


@pytest.mark.parametrize(("new_to", "measured"), [("python", ("3.12.1", "")), ("torch", ("", "2.15.0"))])
def test_pairs_are_left_out_that_one_python_or_one_torch_measured(
    new_to: str, measured: tuple[str, str], planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), "--count", "9", "--new-to", new_to)
    python, torch = measured
    stored = [
        each
        for each in import_results.load()
        if python in ("", each.python) and torch in ("", without_local(each.torch))
    ]
    left = open_pairs(ApiMap(), stored)
    assert found.exit_code == 0
    assert planned_combinations
    assert all(each.pairs & left for each in planned_combinations)


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--new-to", "numpy"), "'numpy' is neither 'python' nor 'torch'"), (("--new", "--new-to", "torch"), "give one")],
)
def test_pairs_cannot_be_left_out_otherwise(
    words: tuple[str, ...], message: str, planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), *words)
    assert isinstance(found.exception, UserError)
    assert message in str(found.exception)
    assert not planned_combinations


def test_combinations_are_made_for_some_releases_of_transformers(
    planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), "--count", "3", "--transformers", "<4.45")
    assert (found.exit_code, len(planned_combinations)) == (0, 3)
    assert all(each.versions["transformers"] < "4.45" for each in planned_combinations)


def test_what_is_no_specifier_is_named(planned_combinations: list[PlannedCombination], tmp_path: Path) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), "--transformers", "new")
    assert isinstance(found.exception, UserError)
    assert "--transformers: 'new' is no version specifier; write e.g. '>=5.0'" in str(found.exception)
    assert not planned_combinations


def test_a_measurement_without_any_combination_says_so(
    planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), "--transformers", ">=99")
    assert isinstance(found.exception, UserError)
    assert "no combination was imported" in str(found.exception)
    assert not [*tmp_path.glob("*.json"), *planned_combinations]


def test_with_again_the_combinations_of_a_file_are_imported(
    planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    versions = {"transformers": "4.46.3", "peft": "0.14.0", "trl": "0.12.2"}
    stored = [CombinationResult(versions=versions, steps=(), python="3.11.7", torch="2.5.1", seconds=0)]
    import_results.save(stored, tmp_path / "old.json", measured=datetime(2026, 11, 25, tzinfo=UTC))
    words = ("measure", "--python", "python", "--out", str(tmp_path / "new"), "--again", str(tmp_path / "old.json"))
    assert run(*words).exit_code == 0
    assert [(each.versions, each.variants) for each in planned_combinations] == [(versions, ("0.12.2",))]


@pytest.mark.parametrize("other", [("--new",), ("--new-to", "python"), ("--with", "peft"), ("--transformers", ">=5")])
def test_again_chooses_no_new_pairs(
    other: tuple[str, ...], planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), "--again", str(tmp_path / "old.json"), *other)
    assert isinstance(found.exception, UserError)
    assert "leave --new, --new-to, --with and --transformers out" in str(found.exception)
    assert not planned_combinations


@pytest.mark.parametrize("other", [("--count", "400"), ("--new",), ("--plan-only",)])
def test_a_list_of_combinations_is_imported_as_it_is(other: tuple[str, ...], tmp_path: Path) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), "--planned", *other)
    assert isinstance(found.exception, UserError)
    assert "leave the options that choose or list them out" in str(found.exception)


def test_a_package_without_pairs_is_named(planned_combinations: list[PlannedCombination], tmp_path: Path) -> None:
    found = run("measure", "--python", "python", "--out", str(tmp_path), "--with", "datasets")
    assert isinstance(found.exception, UserError)
    assert "'datasets' has no pairs with transformers; choose from peft, trl" in str(found.exception)
    assert not planned_combinations


def test_planned_combinations_are_imported_later_and_without_an_index(
    planned_combinations: list[PlannedCombination], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("measure", "--python", "env/bin/python", "--out", str(tmp_path))
    listed = run(*words, "--count", "3", "--transformers", "<4.45", "--plan-only")
    assert "3 combinations listed in" in listed.stdout
    assert not list(tmp_path.glob("*.json"))
    monkeypatch.delattr(measure, "unpacked")
    assert "imported; results in" in run(*words, "--planned").stdout
    (stored,) = tmp_path.glob("*.json")
    bases = {each.versions["transformers"] for each in import_results.of_file(stored)}
    assert bases == {each.versions["transformers"] for each in planned_combinations}


def test_without_a_list_planned_says_how_to_write_one(
    planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    found = run("measure", "--python", "env/bin/python", "--out", str(tmp_path), "--planned")
    assert "no list of combinations; `ftmatrix map measure --plan-only` writes it" in str(found.exception)
    assert not planned_combinations


@pytest.mark.parametrize("other", [("--plan-only",), ("--new",), ("--again", "old.json"), ("--transformers", ">=5")])
def test_planned_chooses_no_combinations(
    other: tuple[str, ...], planned_combinations: list[PlannedCombination], tmp_path: Path
) -> None:
    found = run("measure", "--python", "env/bin/python", "--out", str(tmp_path), "--planned", *other)
    assert isinstance(found.exception, UserError)
    assert "--planned has its combinations from a list" in str(found.exception)
    assert not planned_combinations
