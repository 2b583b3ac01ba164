"""Stored results of the import matrix, and their comparison with predictions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from cases.imports.wire import CombinationResult, StepResult
from matrix.api_map.measured import import_results
from matrix.api_map.measured.evaluation import concerns_map
from matrix.errors import UserError
from matrix.keys import without_local

if TYPE_CHECKING:
    from pathlib import Path

STEPS = (
    StepResult(step="import peft"),
    StepResult(
        step="import trl",
        error="ImportError",
        message="cannot import name 'A' from 'transformers' (/x/transformers/__init__.py)",
        places=("trl.trainer.sft_trainer",),
    ),
)


def result(**versions: str) -> CombinationResult:
    return CombinationResult(versions=versions, steps=STEPS, python="3.11.7", torch="2.5.1", seconds=1.0)


def test_results_are_read_as_they_were_written_without_folders(tmp_path: Path) -> None:
    import_results.save(
        [result(trl="0.9.0", peft="0.9.0")], tmp_path / "a.json", measured=datetime(2026, 11, 25, tzinfo=UTC)
    )
    (found,) = import_results.load(tmp_path)
    assert found.versions == {"trl": "0.9.0", "peft": "0.9.0"}
    assert (found.imports("peft"), found.imports("trl"), found.imports("torch")) == (True, False, None)
    assert found.errors["import trl"] == (
        "ImportError: cannot import name 'A' from 'transformers' [trl.trainer.sft_trainer]"
    )


def test_the_last_measurement_of_a_combination_counts_unless_the_torch_differs(tmp_path: Path) -> None:
    older, other = result(trl="0.9.0", peft="0.9.0"), result(trl="0.9.0", peft="0.10.0")
    newer = replace(older, steps=(StepResult(step="import trl"),), torch="2.5.1+cpu")
    elsewhere = replace(newer, torch="2.15.0")
    import_results.save([newer], tmp_path / "a.json", measured=datetime(2026, 11, 26, tzinfo=UTC))
    import_results.save([older, other], tmp_path / "b.json", measured=datetime(2026, 11, 25, tzinfo=UTC))
    import_results.save([elsewhere], tmp_path / "c.json", measured=datetime(2026, 11, 24, tzinfo=UTC))
    found = [(each.torch, each.versions["peft"], each.imports("trl")) for each in import_results.load(tmp_path)]
    assert found == [("2.15.0", "0.9.0", True), ("2.5.1", "0.10.0", False), ("2.5.1+cpu", "0.9.0", True)]
    assert len(list(import_results.of_file(tmp_path / "b.json"))) == 2


def test_the_later_of_two_measurements_of_one_day_counts_whatever_its_file_is_called(tmp_path: Path) -> None:
    morning, evening = result(trl="0.9.0"), replace(result(trl="0.9.0"), steps=(StepResult(step="import trl"),))
    import_results.save([evening], tmp_path / "a.json", measured=datetime(2026, 11, 26, 20, tzinfo=UTC))
    import_results.save([morning], tmp_path / "b.json", measured=datetime(2026, 11, 26, 8, tzinfo=UTC))
    (found,) = import_results.load(tmp_path)
    assert found.imports("trl")


def test_a_combination_that_ran_twice_is_stored_once_as_it_ended_last(tmp_path: Path) -> None:
    first, last = result(trl="0.9.0"), replace(result(trl="0.9.0"), steps=(StepResult(step="import trl"),))
    import_results.save([first, last], tmp_path / "a.json", measured=datetime(2026, 11, 26, tzinfo=UTC))
    (found,) = import_results.of_file(tmp_path / "a.json")
    assert found.imports("trl")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        ("[]", "no results of imports"),
        ("{}", "no results of imports"),
        ('{"schema": 1, "measured": "yesterday", "rows": []}', "no results of imports"),
        ('{"schema": 1, "measured": "2026-11-26", "rows": [1]}', "no results of imports"),
        ('{"schema": 99}', "schema 99 is newer"),
    ],
)
def test_a_file_without_results_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=reason):
        list(import_results.of_file(tmp_path / "a.json"))


def test_no_packaged_combination_was_measured_twice_at_one_time() -> None:
    packaged = [each for path in import_results.FOLDER.glob("*.json") for each in import_results.of_file(path)]
    when = [
        (*sorted(each.versions.items()), each.python, without_local(each.torch), each.measured) for each in packaged
    ]
    assert len(set(when)) == len(when) > 0


def test_a_combination_has_no_version_of_a_package_that_only_others_have(tmp_path: Path) -> None:
    import_results.save(
        [result(trl="0.9.0", tokenizers="0.20.0"), result(trl="0.9.0")],
        tmp_path / "a.json",
        measured=datetime(2026, 11, 25, tzinfo=UTC),
    )
    assert {"trl": "0.9.0"} in [each.versions for each in import_results.load(tmp_path)]


def test_a_result_survives_its_line() -> None:
    assert CombinationResult.parsed(result(trl="1").line()) == result(trl="1")


@pytest.mark.parametrize(
    ("error", "concerned"),
    [
        ("ImportError: cannot import name 'A' from 'transformers' [x]", True),
        ("AttributeError: type object 'TrainingArguments' has no attribute 'x'", True),
        ("ImportError: tokenizers>=0.22 is required", True),
        ("ModuleNotFoundError: No module named 'triton.ops' [x]", False),
        ("AttributeError: module 'pyarrow' has no attribute 'json_' [x]", False),
        ("ImportError: numpy>=1.17,<2.0 is required", False),
    ],
)
def test_an_error_concerns_the_map_if_it_names_one_of_its_packages(error: str, concerned: bool) -> None:  # noqa: FBT001
    assert concerns_map(error) is concerned
