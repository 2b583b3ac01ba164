"""Importing combinations in several processes, with packages written for the test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cases.imports.wire import Combination
from matrix.api_map.measured import listing, measure
from matrix.errors import UserError


def package(folder: Path, name: str, source: str) -> str:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source, encoding="utf-8")
    return str(folder)


@pytest.fixture
def combinations(tmp_path: Path) -> list[Combination]:
    """Return combinations of two releases of transformers, of which the first lacks what peft takes."""
    peft = package(tmp_path / "peft", "peft", "from transformers import Cache\n")
    trl = package(tmp_path / "trl", "trl", "")
    return [
        Combination(
            versions={"transformers": version, "peft": "1"},
            folders=(package(tmp_path / version, "transformers", source), peft),
            variants=(("1", trl),),
        )
        for version, source in (("1", ""), ("2", "Cache = None\n"))
    ]


def test_several_processes_import_all_combinations(tmp_path: Path, combinations: list[Combination]) -> None:
    extra = Path(package(tmp_path / "extra", "torch", "__version__ = '2.5.1'\n"))
    results = tmp_path / "results" / "env.jsonl"
    found = measure.import_combinations(
        combinations, python=Path(sys.executable), results=results, minutes=2, extra=extra, processes=2
    )
    messages = {
        each.versions["transformers"]: next(step.message for step in each.steps if step.step == "import peft")
        for each in found
    }
    assert {each.torch for each in found} == {"2.5.1"}
    assert "cannot import name 'Cache'" in messages["1"]
    assert "cannot import name 'LoraConfig'" in messages["2"]
    assert measure.libraries_beside(results)["packaging"]
    assert measure.read_results(results) == found
    assert not results.with_suffix(listing.SHARES).exists()


def test_a_process_that_fails_is_reported(tmp_path: Path, combinations: list[Combination]) -> None:
    extra = Path(package(tmp_path / "extra", "torch", "import os\nos._exit(3)\n"))
    results = tmp_path / "results" / "env.jsonl"
    with pytest.raises(UserError, match="importing combinations ended with 3"):
        measure.import_combinations(
            combinations, python=Path(sys.executable), results=results, minutes=2, extra=extra, processes=2
        )
    assert measure.read_results(results) == []


def test_an_interpreter_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be started"):
        measure.environment_versions(tmp_path / "python")
