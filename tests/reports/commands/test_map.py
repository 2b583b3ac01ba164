"""``ftmatrix map``: answers from the packaged map, and bad input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from matrix.errors import UserError
from reports.cli import application

if TYPE_CHECKING:
    from typer.testing import Result


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
