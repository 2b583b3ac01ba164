"""Importing combinations in forks: each sees its own folders, and reports its own errors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cases.imports.probe import measured, module_of
from cases.imports.wire import Combination

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def package(folder: Path, name: str, source: str) -> str:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source, encoding="utf-8")
    return str(folder)


def test_each_release_of_trl_is_imported_with_the_rest_of_its_combination(tmp_path: Path) -> None:
    combination = Combination(
        versions={"bitsandbytes": "1", "peft": "1"},
        folders=(
            package(tmp_path / "bnb", "bitsandbytes", ""),
            package(tmp_path / "peft", "peft", "LoraConfig = get_peft_model = None\n"),
        ),
        variants=(
            ("1", package(tmp_path / "trl1", "trl", "SFTTrainer = DPOTrainer = None\n")),
            ("2", package(tmp_path / "trl2", "trl", "from peft import gone\n")),
        ),
    )
    first, second = measured(combination, limit=60.0, torch="2.5.1")
    errors = [{each.step: each.message for each in result.steps} for result in (first, second)]
    assert (first.versions["trl"], second.versions["trl"]) == ("1", "2")
    assert all(not each["import bitsandbytes"] for each in errors)
    assert all("prepare_model_for_kbit_training" in each["import peft"] for each in errors)
    assert not errors[0]["import trl"]
    assert "cannot import name 'gone' from 'peft'" in errors[1]["import trl"]


def test_an_import_that_takes_too_long_ends(tmp_path: Path) -> None:
    slow = package(tmp_path / "slow", "transformers", "import time\ntime.sleep(60)\n")
    trl = package(tmp_path / "trl", "trl", "")
    (found,) = measured(Combination(versions={}, folders=(slow,), variants=(("1", trl),)), limit=0.2, torch="2")
    assert found.ended == "time limit of 0 s"
    assert found.steps == ()


def test_a_place_is_the_module_in_the_innermost_folder_of_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/folder", "/folder/checkout", "/folder/env/site-packages"])
    assert module_of("/folder/checkout/cases/imports/steps.py") == "cases.imports.steps"
    assert module_of("/folder/env/site-packages/trl/__init__.py") == "trl"
    assert not module_of("/elsewhere/trl/core.py")
